"""Whether a worker that died is started again: yes, unless it dies again and again at one point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

from htsrl.errors import EnvironmentFailure, HtsrlError, NotReproduced, PeerDied

MOST_KILLS_AT_ONE_POINT = 50


@dataclass(frozen=True)
class Death:
    """How a worker ended."""

    worker: int
    point: Hashable
    """How far its work had come."""
    by_sigkill: bool
    """Killed from outside, by a person or for want of memory; all else is its own doing and would happen again."""
    error: HtsrlError


class Restarts:
    """Counts deaths by worker and point."""

    def __init__(self, allowed: bool) -> None:
        self.allowed = allowed
        self._deaths: Counter[tuple[int, Hashable]] = Counter()

    def judge(self, death: Death) -> HtsrlError | None:
        """None where the worker is to be started again, else the error that the run ends with."""
        here = (death.worker, death.point)
        self._deaths[here] += 1
        most = MOST_KILLS_AT_ONE_POINT if death.by_sigkill else 1
        goes_on = self.allowed and _may_pass(death.error) and self._deaths[here] <= most
        return None if goes_on else death.error


def _may_pass(error: HtsrlError) -> bool:
    """A kill, a crash or a whim of an environment; what htsrl itself finds wrong, it would find wrong again."""
    return isinstance(error, PeerDied | EnvironmentFailure) and not isinstance(error, NotReproduced)
