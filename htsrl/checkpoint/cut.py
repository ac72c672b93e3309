"""A cut through a run: all of shared memory that its future depends on.

The words say what is whole at any instant: version v is published; each environment has completed b rollouts and has
a capsule from there; the storages hold the completed rollouts from v on, which nobody has learned from yet. Whatever
was begun beyond that is left out, and made again to the same bits. The learner may cut when it begins update v, for
until it publishes nobody touches what it copies; anybody may once all others have stopped. Under an asynchronous
schedule executors never wait for the learner, so there an environment's part is copied again until it stood still.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.dataflow.capsules import Capsule
from htsrl.dataflow.exchange import Words
from htsrl.dataflow.memory import SharedArrays
from htsrl.dataflow.queue import ORDERS, RELEASED
from htsrl.dataflow.shared import Shared
from htsrl.dataflow.versions import slot_of
from htsrl.errors import CheckpointDamaged

Arrays = dict[str, NDArray[Any]]
SLOT_ARRAYS = (
    "parameter_slots",
    "optimizer_steps",
    "statistics",
    "digest_chains",
    "episode_counts",
    "episode_windows",
    "env_errors",
)


def take_cut(shared: Shared, memory: SharedArrays, version: int, completed: Words) -> Arrays:
    """Copy what a run needs to go on from `version` and, environment by environment, from `completed` rollouts."""
    views = _views(shared, memory, version, completed)
    arrays = {name: np.array(view) for name, view in views}
    capsules = [shared.capsules.get(env, int(rollout)) for env, rollout in enumerate(completed)]
    heaps = [shared.capsules.read(env, capsule) for env, capsule in enumerate(capsules)]
    return arrays | _capsule_arrays(completed, capsules, heaps)


def take_queued_cut(shared: Shared, memory: SharedArrays, version: int) -> Arrays:
    """The same where environments have come as far as they have, and go on while they are copied."""
    exchange, views = shared.exchange, dict(_queued_views(shared, memory, version))
    by_env = {name: view for name, view in views.items() if name == ORDERS or name.startswith("storage")}
    arrays = {name: np.empty_like(view) if name in by_env else np.array(view) for name, view in views.items()}
    completed, capsules, heaps = np.zeros_like(exchange.completed_rollouts), [], []
    for env in range(len(completed)):
        columns = shared.storages.spec.columns_of(env)
        while True:
            completed[env] = rollout = int(exchange.completed_rollouts[env])
            capsule = shared.capsules.get(env, rollout)
            if exchange.completed_rollouts[env] != rollout:
                continue
            heap = shared.capsules.read(env, capsule)
            for name, view in by_env.items():
                part = env if name == ORDERS else columns
                arrays[name][:, part] = view[:, part]
            if exchange.completed_rollouts[env] == rollout:
                break
        capsules.append(capsule)
        heaps.append(heap)
    return arrays | _capsule_arrays(completed, capsules, heaps)


def _capsule_arrays(completed: Words, capsules: Sequence[Capsule], heaps: Sequence[bytes]) -> Arrays:
    return {
        "completed_rollouts": np.array(completed),
        "capsule_episodes": np.array([capsule.episode for capsule in capsules]),
        "capsule_lengths": np.array([capsule.length for capsule in capsules]),
        "capsule_scores": np.array([capsule.score for capsule in capsules]),
        "capsule_sizes": np.array([capsule.num_bytes for capsule in capsules]),
        "capsule_is_log": np.array([capsule.is_log for capsule in capsules]),
        "capsule_bytes": np.frombuffer(b"".join(heaps), np.uint8),
    }


def restore_cut(arrays: Mapping[str, NDArray[Any]], version: int, shared: Shared, memory: SharedArrays) -> None:
    """Fill the shared memory of a run that has not begun."""
    completed = _part(arrays, "completed_rollouts", shared.exchange.completed_rollouts)
    queued, first = shared.queue is not None, np.full_like(completed, version)
    if queued:
        first = _part(arrays, f"slot {slot_of(version)}/{RELEASED}", completed)
    if not ((first <= completed) & (completed <= first + shared.storages.spec.num_storages)).all():
        raise CheckpointDamaged(f"the checkpoint of version {version} has environments at rollouts {completed}")
    views = _queued_views(shared, memory, version) if queued else _views(shared, memory, version, completed)
    for name, view in views:
        view[...] = _part(arrays, name, view)
    _restore_capsules(arrays, completed, shared)
    shared.exchange.completed_rollouts[:] = completed
    shared.exchange.published_version = version
    shared.exchange.note_restored(version)


def _views(shared: Shared, memory: SharedArrays, version: int, completed: Words) -> Iterator[tuple[str, NDArray[Any]]]:
    """The parts of the memory that count, by name."""
    yield from _slot_views(memory, version, SLOT_ARRAYS)
    rollouts = {int(rollout) - 1 for rollout in completed} | {version if (completed > version).any() else -1}
    for storage in sorted({shared.storages.of_rollout(rollout) for rollout in rollouts if rollout >= 0}):
        for name, field in shared.storages.lasting.items():
            yield f"storage {storage}/{name}", field[storage]


def _queued_views(shared: Shared, memory: SharedArrays, version: int) -> Iterator[tuple[str, NDArray[Any]]]:
    """The same where rollouts queue, in all storages."""
    yield from _slot_views(memory, version, (*SLOT_ARRAYS, RELEASED))
    yield ORDERS, memory[ORDERS]
    for storage in range(shared.storages.spec.num_storages):
        for name, field in shared.storages.lasting.items():
            yield f"storage {storage}/{name}", field[storage]


def _slot_views(memory: SharedArrays, version: int, names: Sequence[str]) -> Iterator[tuple[str, NDArray[Any]]]:
    for slot in sorted({slot_of(version), slot_of(max(version - 1, 0))}):
        for name in names:
            yield f"slot {slot}/{name}", memory[name][slot, ...]


def _restore_capsules(arrays: Mapping[str, NDArray[Any]], completed: Words, shared: Shared) -> None:
    names = ("capsule_episodes", "capsule_lengths", "capsule_scores", "capsule_sizes", "capsule_is_log")
    episodes, lengths, scores, sizes, is_log = (_part(arrays, name, completed) for name in names)
    heaps = _part(arrays, "capsule_bytes", np.empty(sum(map(int, sizes.clip(0))), np.uint8)).tobytes()
    begin = 0
    for env, rollout in enumerate(completed.tolist()):
        num_bytes = int(sizes[env])
        episode, score, length = int(episodes[env]), float(scores[env]), int(lengths[env])
        capsule = Capsule(episode, score, length, heap=0, num_bytes=num_bytes, is_log=bool(is_log[env]))
        shared.capsules.write(env, capsule.heap, 0, heaps[begin : begin + num_bytes])
        shared.capsules.put(env, rollout, capsule)
        begin += num_bytes


def _part(arrays: Mapping[str, NDArray[Any]], name: str, like: NDArray[Any]) -> NDArray[Any]:
    """An array of the checkpoint, of the shape that the run has for it."""
    if name not in arrays:
        raise CheckpointDamaged(f"the checkpoint lacks {name!r}; was it written by another version of htsrl?")
    if arrays[name].shape != like.shape:
        raise CheckpointDamaged(
            f"{name!r} has shape {arrays[name].shape} in the checkpoint, the run needs {like.shape}"
        )
    return arrays[name]
