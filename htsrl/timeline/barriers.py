"""Barriers: when the rollouts of an update were complete, and which environment was the slowest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from htsrl.dataflow.shared_arrays import SharedArrays


class Barrier(NamedTuple):
    """The rollouts of all environments that one update waits for."""

    update: int
    median_ns: int
    """When half of them were complete."""
    last_ns: int
    slowest: int
    """The environment that the others waited for."""


class Barriers:
    """Written by the learner when an update begins, read by executors that waited for the version that it made."""

    def __init__(self, block: SharedArrays, executor_envs: Sequence[Sequence[int]]) -> None:
        self._rollouts = block["timeline_rollouts"]
        self._barriers = block["timeline_barriers"]
        self._late = block["timeline_late"]
        self._companions = {env: envs for envs in executor_envs for env in envs}

    def note(self, update: int) -> Barrier | None:
        """The learner finds the update's rollouts complete; None where one is older than a resume, so untimed."""
        place = update % len(self._barriers)
        ended, inside = self._rollouts[:, place].T.tolist()
        if 0 in ended:
            return None
        last = max(range(len(ended)), key=ended.__getitem__)
        # Environments that an executor steps in turn end at about the same time: the one that took longest was to blame
        slowest = max(self._companions[last], key=inside.__getitem__)
        median_ns, last_ns = sorted(ended)[(len(ended) - 1) // 2], ended[last]
        self._late[slowest] += 1, last_ns - median_ns
        self._barriers[place, 1:] = last_ns, slowest
        self._barriers[place, 0] = update + 1
        return Barrier(update, median_ns, last_ns, slowest)

    def of(self, update: int) -> Barrier | None:
        """None where the update has not begun, or was overtaken."""
        number, last_ns, slowest = self._barriers[update % len(self._barriers)].tolist()
        return Barrier(update, last_ns, last_ns, slowest) if number == update + 1 else None
