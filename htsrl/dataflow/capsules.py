"""Capsules: what brings an environment back to where it stood between two rollouts, should its process be gone.

Each environment has places for a few capsules, used in turn, and as many heaps for the bytes of them. The executor
writes the capsule that ends rollout j-1 before it counts that rollout as completed, so the newest one that counts is
always whole. The one of a barrier stays whole until the learner has published, however far the environment may
continue. The heaps lie behind the arrays, in the sparse part of the block's file, which takes memory only where
something was written: nobody knows beforehand how long an episode, and so the list of its actions, will be.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import IntEnum

from htsrl.dataflow.shared_arrays import ArraySpec, SharedArrays

HEAP_BYTES = 1 << 36  # of addresses in the file, not of memory


class _Number(IntEnum):
    """The columns of `capsules`."""

    EPISODE = 0
    LENGTH = 1
    HEAP = 2
    NUM_BYTES = 3
    IS_LOG = 4


@dataclass(frozen=True)
class Capsule:
    """An environment between two rollouts."""

    episode: int
    score: float
    """Return of the episode so far."""
    length: int
    heap: int
    num_bytes: int
    """How much of the heap counts."""
    is_log: bool
    """Whether the heap has the episode's actions so far, or a saved state."""


def num_places_for(max_lag: int | None) -> int:
    """From a barrier, environments continue by `max_lag` rollouts, each with a capsule at its end. Where there are no
    barriers, and at least: the newest that counts, and the one that is being written."""
    return max(max_lag or 1, 1) + 1


def capsule_arrays(num_envs: int, num_places: int) -> list[ArraySpec]:
    """Written by the environment's executor."""
    return [
        ArraySpec("capsules", (num_envs, num_places, len(_Number)), "int64"),
        ArraySpec("capsule_scores", (num_envs, num_places), "float64"),
    ]


class Capsules:
    """The capsules of all environments."""

    def __init__(self, block: SharedArrays) -> None:
        assert block.num_bytes <= HEAP_BYTES, f"{block.num_bytes} bytes of arrays reach into the first heap"
        self._numbers = block["capsules"]
        self._scores = block["capsule_scores"]
        self._fd = block.fd
        self._num_places: int = self._scores.shape[1]

    def put(self, env: int, rollout: int, capsule: Capsule) -> None:
        """Keep the capsule from which `rollout` starts; what is on the heap was written before."""
        place = rollout % self._num_places
        numbers = (capsule.episode, capsule.length, capsule.heap, capsule.num_bytes, capsule.is_log)
        self._numbers[env, place] = numbers
        self._scores[env, place] = capsule.score

    def get(self, env: int, rollout: int) -> Capsule:
        place = rollout % self._num_places
        episode, length, heap, num_bytes, is_log = self._numbers[env, place].tolist()
        return Capsule(episode, float(self._scores[env, place]), length, heap, num_bytes, bool(is_log))

    def heap_after(self, capsule: Capsule | None) -> int:
        """The heap to begin anew, behind that of `capsule`: no capsule that is still needed has its bytes there."""
        return (capsule.heap + 1) % self._num_places if capsule else 0

    def write(self, env: int, heap: int, offset: int, data: bytes) -> None:
        """Put bytes on a heap, beyond what the newest capsule counts or on the next heap."""
        position = self._position(env, heap) + offset
        while data:
            written = os.pwrite(self._fd, data, position)
            data, position = data[written:], position + written

    def read(self, env: int, capsule: Capsule) -> bytes:
        data = os.pread(self._fd, capsule.num_bytes, self._position(env, capsule.heap))
        assert len(data) == capsule.num_bytes, f"a capsule of environment {env} lacks bytes"
        return data

    def _position(self, env: int, heap: int) -> int:
        return int(1 + env * self._num_places + heap) * HEAP_BYTES
