"""A cut through a run: all of shared memory that its future depends on.

The words say what is whole at any instant: version v is published, and those before it that may still act or be
differentiated are in their slots; each environment has completed b rollouts and has a capsule from there; the storages
hold the completed rollouts that nobody has learned from yet. Whatever was begun beyond that is left out, and made again
to the same bits. The learner may cut when it begins update v, for until it publishes nobody touches what it copies;
anybody may once all others have stopped. Under an asynchronous schedule executors never wait for the learner, so there
an environment's part is copied again until it stood still.

Beside storages and capsules, what is kept is what the arrays' declarations say (`ArraySpec.kept_by`). A replay buffer
is taken apart, in segments (`checkpoint/segments.py`), and put back with the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.dataflow.capsules import Capsule
from htsrl.dataflow.exchange import Words
from htsrl.dataflow.learner_slots import EPISODE_WINDOWS, NUM_HASHED_COLUMNS
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.dataflow.trajectory import INFO_PREFIX
from htsrl.dataflow.versions import slot_of
from htsrl.errors import CheckpointDamaged
from htsrl.roles.shared import Shared

Arrays = dict[str, NDArray[Any]]


def take_cut(shared: Shared, block: SharedArrays, version: int, completed: Words | None) -> Arrays:
    """Copy what a run needs to continue from `version` and, environment by environment, from `completed` rollouts; None
    is wherever each stands when it is copied."""
    arrays = {name: np.array(view) for name, view in _version_views(block, version, appended=False)}
    if completed is None:
        return arrays | _copies_of_moving_envs(shared, block)
    storages = _storages_in_use(shared, version, completed)
    arrays |= {name: np.array(view) for name, view in _env_views(shared, block, storages)}
    capsules = [shared.capsules.get(env, int(rollout)) for env, rollout in enumerate(completed)]
    heaps = [shared.capsules.read(env, capsule) for env, capsule in enumerate(capsules)]
    return arrays | _capsule_arrays(completed, capsules, heaps)


def _copies_of_moving_envs(shared: Shared, block: SharedArrays) -> Arrays:
    """The same where environments have come as far as they have, and continue while they are copied."""
    exchange, spec = shared.exchange, shared.storages.spec
    views = dict(_env_views(shared, block, range(spec.num_storages)))
    arrays = {name: np.empty_like(view) for name, view in views.items()}
    completed, capsules, heaps = np.zeros_like(exchange.completed_rollouts), [], []
    for env in range(len(completed)):
        while True:
            completed[env] = rollout = int(exchange.completed_rollouts[env])
            capsule = shared.capsules.get(env, rollout)
            if exchange.completed_rollouts[env] != rollout:
                continue
            heap = shared.capsules.read(env, capsule)
            for name, view in views.items():
                part = spec.columns_of(env) if name.startswith("storage ") else env
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


def restore_cut(arrays: Mapping[str, NDArray[Any]], version: int, shared: Shared, block: SharedArrays) -> None:
    """Fill the shared memory of a run that has not begun."""
    arrays = with_versions_named(arrays, version)
    for name, view in _version_views(block, version):
        view[...] = _part(arrays, name, view)
    completed = _part(arrays, "completed_rollouts", shared.exchange.completed_rollouts)
    released = shared.source.released(version)
    if not ((released <= completed) & (completed <= released + shared.storages.spec.num_storages)).all():
        raise CheckpointDamaged(f"the checkpoint of version {version} has environments at rollouts {completed}")
    for name, view in _env_views(shared, block, _storages_in_use(shared, version, completed)):
        view[...] = _part(arrays, name, view)
    _restore_capsules(arrays, completed, shared)
    shared.exchange.completed_rollouts[:] = completed
    shared.exchange.published_version = version
    shared.exchange.note_restored(version)


def _version_views(block: SharedArrays, version: int, appended: bool = True) -> Iterator[tuple[str, NDArray[Any]]]:
    """What belongs to versions in use: all slots but the one that the next version takes, and what they have filled.

    Of what is written over in turn, the next version's update may have written some already; it writes the same again.
    """
    for spec in block.specs:
        if spec.kept_by == "version":
            num_slots = spec.shape[0]
            for in_use in range(max(version + 2 - num_slots, 0), version + 1):
                yield f"version {in_use}/{spec.name}", block[spec.name][slot_of(in_use, num_slots), ...]
        elif spec.kept_by == "filled" or (spec.kept_by == "appended" and appended and version):
            yield spec.name, block[spec.name][: version * spec.rows_per_version]


def _env_views(shared: Shared, block: SharedArrays, storages: Sequence[int]) -> Iterator[tuple[str, NDArray[Any]]]:
    """What belongs to environments, which the second axis tells apart, in storages by their columns."""
    for spec in block.specs:
        if spec.kept_by == "env":
            yield spec.name, block[spec.name]
    for storage in storages:
        for name, field in shared.storages.lasting.items():
            yield f"storage {storage}/{name}", field[storage]


def _storages_in_use(shared: Shared, version: int, completed: Words) -> list[int]:
    """Those of complete rollouts not yet learned from, and of the last one of each environment, at whose end the next
    begins."""
    released = shared.source.released(version)
    rollouts: set[int] = set()
    for first, end in zip(released.tolist(), completed.tolist(), strict=True):
        rollouts |= {*range(max(min(first, end - 1), 0), end)}
    return sorted({shared.storages.of_rollout(rollout) for rollout in rollouts})


def with_versions_named(arrays: Mapping[str, NDArray[Any]], version: int) -> Mapping[str, NDArray[Any]]:
    """Checkpoints used to tell versions by their slots, of which there were three whatever the schedule."""
    versions = {f"slot {slot_of(v, num_slots=3)}": f"version {v}" for v in (version, max(version - 1, 0))}
    named = {}
    for name, array in arrays.items():
        slot, _, rest = name.partition("/")
        named[f"{versions[slot]}/{rest}" if slot in versions else name] = array
    return named


def with_info_of(arrays: Mapping[str, NDArray[Any]], before: Sequence[str], now: Sequence[str]) -> Arrays:
    """A checkpoint of a run that logged the numbers `before` of its episodes' infos, for one that logs those of `now`:
    what was not logged is not a number, as where an environment did not tell. No bit depends on any of it."""
    fitted = {}
    for name, array in arrays.items():
        if name.endswith(f"/{EPISODE_WINDOWS}"):
            if array.ndim != 2 or len(array) != NUM_HASHED_COLUMNS + len(before):
                raise CheckpointDamaged(f"{name!r} has shape {array.shape}, and {len(before)} numbers of infos")
            known = dict(zip(before, array[NUM_HASHED_COLUMNS:], strict=True))
            unknown = np.full_like(array[0], np.nan)
            fitted[name] = np.stack([*array[:NUM_HASHED_COLUMNS], *(known.get(key, unknown) for key in now)])
        else:
            fitted[name] = array
            place, _, field = name.rpartition("/")
            if field == "episode_returns":
                for key in set(now) - set(before):
                    fitted[f"{place}/{INFO_PREFIX}{key}"] = np.full_like(array, np.nan)
    return fitted


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
