"""Whether a worker that died is started again: yes, unless it dies again and again at one point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

from htsrl.errors import EnvironmentFailure, HtsrlError, NotReproduced, PeerDied, UnclearCrash

MAX_KILLS_IN_ONE_STEP = 2
"""Who kills at random hardly meets the same step of the same environment a third time; want of memory does."""
MAX_KILLS_AT_ONE_POINT = 20
"""A killer who hits, every other time, the very worker that was coming back does so twenty times once in a million."""


MAX_UNCLEAR_CRASHES = 4
"""Time for the environments that were in the same step by chance to be in another."""


@dataclass(frozen=True)
class Death:
    """How a worker ended."""

    worker: int
    point: Hashable
    """How far its work had come."""
    by_sigkill: bool
    """Killed from outside, by a person or for want of memory; all else is its own doing and would happen again."""
    error: HtsrlError
    suspect: int | None = None
    """The environment in whose step it was killed; the point is then that step."""


class Restarts:
    """Counts deaths by worker and point."""

    def __init__(self, allowed: bool) -> None:
        self.allowed = allowed
        self._deaths: Counter[tuple[int, Hashable]] = Counter()

    def judge(self, death: Death) -> HtsrlError | None:
        """None where the worker is to be started again, else the error that the run ends with."""
        here = (death.worker, death.point)
        self._deaths[here] += 1
        if not self.allowed or not _may_pass(death.error):
            return death.error
        if self._deaths[here] <= _most(death):
            return None
        return death.error if death.suspect is None else _accusation(death, self._deaths[here])


def _may_pass(error: HtsrlError) -> bool:
    """A kill, a crash or a whim of an environment; what htsrl itself finds wrong, it would find wrong again."""
    return isinstance(error, PeerDied | EnvironmentFailure) and not isinstance(error, NotReproduced)


def _most(death: Death) -> int:
    if isinstance(death.error, UnclearCrash):
        return MAX_UNCLEAR_CRASHES
    if not death.by_sigkill:
        return 1
    return MAX_KILLS_AT_ONE_POINT if death.suspect is None else MAX_KILLS_IN_ONE_STEP


def _accusation(death: Death, times: int) -> EnvironmentFailure:
    return EnvironmentFailure(
        f"in environment {death.suspect}, {death.error}, {times} times in the same step. That is how the kernel ends a "
        "process for which there is no memory left (`dmesg` tells); see what the environment takes there",
        death.suspect,
    )
