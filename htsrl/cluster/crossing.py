"""What crosses between an island and the learner: which words, and in which order they are written.

An island and the learner's machine each have a block of shared memory with the same arrays. Of the environments that
live on the island, these arrays are copied, and by whoever stands in for their writer:

    up     a rollout that counts: its columns of the storage, the capsule at its end, then `completed_rollouts`
    up     what the supervisor only looks at (`ArraySpec.watched_by`), as it stands
    down   a version that is published: the rows that act (`ArraySpec.acting_rows`), then `published_version`

Requests and answers stay on the island. The word that counts is written last on both sides, so a kill between any two
lines leaves a rollout, or a version, that does not count yet, and is sent once more.

**Nobody writes over what has yet to be sent.** An island's rollout j lies in its storage, and its capsule in its place,
until version j+1 is published there; that version is made from rollout j, which the learner does not have before it was
sent. A version v lies in the learner's ring until update v+K+1 drafts; before that comes update v+K, which needs
rollout v+K of this island, which begins with version v there.

An island that begins, or begins again, gets the same downwards: of each environment the last rollout that counts, with
the whole heap of its capsule, and the versions that act.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.cluster.parcel import Arrays, BrokenParcel
from htsrl.cluster.stacks import may_be_stacks, put_together, take_apart
from htsrl.dataflow.capsules import Capsule
from htsrl.dataflow.replicas import owner_of, replica_prefix
from htsrl.dataflow.shared_arrays import ArraySpec, SharedArrays
from htsrl.dataflow.versions import is_intact, slot_of
from htsrl.placements.assignment import worker_layout
from htsrl.placements.blueprint import Blueprint, Envs
from htsrl.processes.kill_points import kill_point
from htsrl.roles.shared import Shared

Named = dict[str, NDArray[Any]]
NUMBER = np.dtype(np.int64)
NUM_NUMBERS = 6
"""Of a capsule: episode, length, heap, offset, size, and whether it is a log."""
NO_CAPSULE = Capsule(episode=0, score=0.0, length=0, heap=-1, num_bytes=0, is_log=False)


class Crossing:
    """One side's end of what crosses for the environments of one island."""

    def __init__(self, blueprint: Blueprint, block: SharedArrays, shared: Shared, island: int) -> None:
        self.envs: Envs = blueprint.islands[island]
        self.workers = workers_on(blueprint, self.envs)
        self._block = block
        self._storages = shared.storages
        self._exchange = shared.exchange
        self._capsules = shared.capsules
        spec = shared.storages.spec
        sent = {name for name, field in shared.storages.lasting.items()} | {*spec.activation_names}
        self._fields = {name: array for name, array in shared.storages.fields.items() if name in sent}
        self._max_lag = shared.schedule.max_lag or 0
        self._num_places = block["capsule_scores"].shape[1]
        own = {replica_prefix(blueprint.replica_of(env)) for env in self.envs}
        self._acting = [spec for spec in block.specs if spec.acting_rows and owner_of(spec.name) in own]
        self._watched = [(spec.name, self._rows_of(spec)) for spec in block.specs if spec.watched_by]
        self._sent_heaps = dict.fromkeys(self.envs, NO_CAPSULE)
        """The newest capsule of each environment that both sides have, so that of a log only what is new is sent."""

    # Rollouts

    def whole_rollouts(self) -> list[Named]:
        """Of each environment the last that counts, as one needs it who has none before it."""
        self._sent_heaps = dict.fromkeys(self.envs, NO_CAPSULE)
        completed = {env: int(self._exchange.completed_rollouts[env]) for env in self.envs}
        return [
            self._take(rollout, [env for env in self.envs if completed[env] == rollout + 1])
            for rollout in sorted({count - 1 for count in completed.values() if count})
        ]

    def new_rollouts(self, known: NDArray[np.int64]) -> list[Named]:
        """All that count now beyond the `known` numbers of each environment, which are brought up to date."""
        completed, taken = self._exchange.completed_rollouts[list(self.envs)], []
        while len(behind := np.flatnonzero(known < completed)):
            rollout = int(known[behind].min())
            behind = behind[known[behind] == rollout]
            taken.append(self._take(rollout, [self.envs[place] for place in behind.tolist()]))
            known[behind] += 1
        return taken

    def _take(self, rollout: int, envs: Sequence[int]) -> Named:
        """Copies of a rollout of some environments."""
        storage, columns = self._storages.of_rollout(rollout), self._columns_of(envs)
        capsules = [self._capsules.get(env, rollout + 1) for env in envs]
        offsets = [_offset(self._sent_heaps[env], capsule) for env, capsule in zip(envs, capsules, strict=True)]
        heaps = [
            self._capsules.read(env, capsule)[offset:]
            for env, capsule, offset in zip(envs, capsules, offsets, strict=True)
        ]
        self._sent_heaps |= dict(zip(envs, capsules, strict=True))
        numbers = [
            (capsule.episode, capsule.length, capsule.heap, offset, capsule.num_bytes, capsule.is_log)
            for capsule, offset in zip(capsules, offsets, strict=True)
        ]
        return {
            "rollout": np.array([rollout]),
            "envs": np.array(envs),
            "capsules": np.array(numbers),
            "scores": np.array([capsule.score for capsule in capsules]),
            "heaps": np.frombuffer(b"".join(heaps), np.uint8),
            **self._take_fields(storage, columns),
        }

    def _take_fields(self, storage: int, columns: NDArray[np.int64]) -> Named:
        taken: Named = {}
        for name, array in self._fields.items():
            rows = array[storage][:, columns]
            if may_be_stacks(rows):
                taken |= {f"{part} of {name}": of_part for part, of_part in take_apart(rows).items()}
            else:
                taken[f"field {name}"] = rows
        return taken

    def _checked_fields(self, given: Arrays, columns: NDArray[np.int64]) -> Named:
        rows: Named = {}
        for name, array in self._fields.items():
            shape = (array.shape[1], len(columns), *array.shape[3:])
            ending = f" of {name}"
            parts = {key.removesuffix(ending): part for key, part in given.items() if key.endswith(ending)}
            if parts and array.dtype == np.uint8:
                rows[name] = put_together(parts, shape)
            else:
                rows[name] = _checked(given, f"field {name}", shape, array.dtype)
        return rows

    def put_whole(self, given: Arrays) -> None:
        """On an island that begins: rollouts that nobody knew here."""
        self._put(given, self._checked_rollout(given), self._checked_envs(given))

    def put_next(self, given: Arrays) -> None:
        """What `new_rollouts` gave, where the ones before have come."""
        rollout, envs = self._checked_rollout(given), self._checked_envs(given)
        known = self._exchange.completed_rollouts[envs]
        if (known != rollout).any():
            raise BrokenParcel(f"rollout {rollout} came where {known.tolist()} are known")
        self._put(given, rollout, envs)

    def _put(self, given: Arrays, rollout: int, envs: list[int]) -> None:
        """All or nothing."""
        storage, columns = self._storages.of_rollout(rollout), self._columns_of(envs)
        capsules, rows = [*self._checked_capsules(given, envs)], self._checked_fields(given, columns)
        for name, of_field in rows.items():
            self._fields[name][storage][:, columns] = of_field
        for env, (capsule, offset, new) in zip(envs, capsules, strict=True):
            self._capsules.write(env, capsule.heap, offset, new)
            self._capsules.put(env, rollout + 1, capsule)
            self._sent_heaps[env] = capsule
        kill_point("before a rollout of an island counts")
        self._exchange.completed_rollouts[envs] = rollout + 1
        kill_point("after a rollout of an island counts")

    def under_way(self, env: int) -> Named:
        """The actions of the rollout that an environment is in, for whoever wants to know how it failed."""
        storage = self._storages.of_rollout(int(self._exchange.completed_rollouts[env]))
        return {"under way": self._storages["actions"][storage][:, self._columns_of([env])]}

    def put_under_way(self, env: int, given: Arrays) -> None:
        array, columns = self._storages["actions"], self._columns_of([env])
        storage = self._storages.of_rollout(int(self._exchange.completed_rollouts[env]))
        shape = (array.shape[1], len(columns), *array.shape[3:])
        array[storage][:, columns] = _checked(given, "under way", shape, array.dtype)

    def _checked_rollout(self, given: Arrays) -> int:
        rollout = int(_checked(given, "rollout", (1,), NUMBER)[0])
        if rollout < 0:
            raise BrokenParcel(f"there is no rollout {rollout}")
        return rollout

    def _checked_envs(self, given: Arrays) -> list[int]:
        found = given.get("envs")
        envs: list[int] = _checked(given, "envs", (0 if found is None else found.size,), NUMBER).tolist()
        if not envs or len({*envs}) < len(envs) or not {*envs} <= {*self.envs}:
            raise BrokenParcel(f"environments {envs} are none of the island's {list(self.envs)}")
        return envs

    def _checked_capsules(self, given: Arrays, envs: Sequence[int]) -> Iterator[tuple[Capsule, int, bytes]]:
        """Each with what is new of its heap, and from where on."""
        numbers = _checked(given, "capsules", (len(envs), NUM_NUMBERS), NUMBER).tolist()
        scores = _checked(given, "scores", (len(envs),), np.dtype(np.float64)).tolist()
        heaps, begin = _checked_bytes(given, "heaps"), 0
        for env, of_env, score in zip(envs, numbers, scores, strict=True):
            episode, length, heap, offset, num_bytes, is_log = of_env
            end = begin + num_bytes - offset
            if not (0 <= heap < self._num_places and 0 <= offset <= num_bytes and end <= len(heaps)):
                raise BrokenParcel(f"the capsule of environment {env} is {of_env}")
            yield Capsule(episode, score, length, heap, num_bytes, bool(is_log)), offset, heaps[begin:end]
            begin = end
        if begin != len(heaps):
            raise BrokenParcel(f"of {len(heaps)} bytes of heaps, capsules tell of {begin}")

    def _columns_of(self, envs: Sequence[int]) -> NDArray[np.int64]:
        num_agents = self._storages.spec.num_agents
        columns: NDArray[np.int64] = (np.array(envs)[:, None] * num_agents + np.arange(num_agents)).reshape(-1)
        return columns

    # Versions

    def acting_versions(self) -> tuple[range, Named]:
        """Copies of all versions that may act in a rollout that an environment has before it."""
        while True:
            newest = self._exchange.published_version
            versions = range(max(newest - self._max_lag, 0), newest + 1)
            taken = self.versions(versions)
            num_slots = len(self._block[self._acting[0].name])
            if is_intact(versions[0], self._exchange.published_version, num_slots):
                return versions, taken

    def versions(self, versions: range) -> Named:
        taken = {}
        for spec in self._acting:
            slots = [slot_of(version, spec.shape[0]) for version in versions]
            taken[spec.name] = self._block[spec.name][slots, : spec.acting_rows]
        return taken

    def put_versions(self, versions: range, given: Arrays) -> None:
        """One after another, as they were published."""
        parts = {}
        for spec in self._acting:
            shape = (len(versions), spec.acting_rows, *spec.shape[2:])
            parts[spec.name] = _checked(given, spec.name, shape, np.dtype(spec.dtype))
        for place, version in enumerate(versions):
            for spec in self._acting:
                rows = self._block[spec.name][slot_of(version, spec.shape[0])][: spec.acting_rows]
                rows[...] = parts[spec.name][place]
            kill_point("before a version counts on an island")
            self._exchange.published_version = version

    # What is only looked at

    def watched(self) -> Named:
        return {name: self._block[name][rows] for name, rows in self._watched}

    def put_watched(self, given: Arrays) -> None:
        for name, rows in self._watched:
            array = self._block[name]
            array[rows] = _checked(given, name, (len(rows), *array.shape[1:]), array.dtype)

    def seconds(self) -> Named:
        """Of what is looked at, all that adds up over a run, so that an island that begins again continues with it."""
        return {name: array for name, array in self.watched().items() if array.dtype.kind == "f"}

    def put_seconds(self, given: Arrays) -> None:
        for name, rows in self._watched:
            if name in given:
                self._block[name][rows] = given[name]

    def _rows_of(self, spec: ArraySpec) -> list[int]:
        return [*self.envs] if spec.watched_by == "env" else [*self.workers]


def workers_on(blueprint: Blueprint, envs: Envs) -> tuple[int, ...]:
    """The numbers of the workers that step these environments, or act for them."""
    numbers = []
    for number, hosted in enumerate(worker_layout(blueprint)):
        own: Envs = ()
        if hosted.executor is not None:
            own = blueprint.executor_envs[hosted.executor]
        elif hosted.actor is not None:
            own = blueprint.actor_envs[hosted.actor]
        if own and {*own} <= {*envs}:
            numbers.append(number)
    return tuple(numbers)


def _offset(before: Capsule, capsule: Capsule) -> int:
    """Up to where the other side has the bytes of a heap: of a log, which was only appended to."""
    return before.num_bytes if capsule.is_log and capsule.heap == before.heap else 0


def _checked(given: Arrays, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    array = given.get(name)
    if array is None or array.shape != shape or array.dtype != dtype:
        found = "is missing" if array is None else f"is {array.dtype} {array.shape}"
        raise BrokenParcel(f"{name!r} {found}, not {dtype} {shape}")
    return array


def _checked_bytes(given: Arrays, name: str) -> bytes:
    found = given.get(name)
    return _checked(given, name, (0 if found is None else found.size,), np.dtype(np.uint8)).tobytes()


def several(taken: Sequence[Named]) -> Named:
    """Rollouts as the arrays of one parcel."""
    return {f"{place}/{name}": array for place, one in enumerate(taken) for name, array in one.items()}


def one_by_one(arrays: Arrays, count: int) -> list[Named]:
    found: list[Named] = [{} for _ in range(count)]
    for name, array in arrays.items():
        place, _, rest = name.partition("/")
        if place.isdecimal() and int(place) < count:
            found[int(place)][rest] = array
    return found
