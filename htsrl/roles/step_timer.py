"""Times the steps of one environment: all of them where they take long, one in sixteen where they are quick."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns as now

import numpy as np
from numpy.typing import NDArray

TIMED_STEPS = 16
"""Of quick steps one of so many is timed: looking at the clock and keeping what it said take half a microsecond."""
QUICK_NS = 100_000
OUTLIER = 4
"""A quick step that took so many times as long as usual stands for itself alone: the process was taken off its core, or
the environment does something rare."""

OnSteps = Callable[[int, int, int], None]
"""When a step began and ended, and for how many steps it stands, others that were not timed among them."""


class StepTimer:
    """What a step was timed for never changes: the sum over a rollout's steps is over all of them."""

    def __init__(self, index: int, env_seconds: NDArray[np.float64], num_steps: int) -> None:
        self.every = 1
        """Steps are timed in the rows that this divides."""
        self.on_steps: OnSteps = lambda start, end, number: None
        self._index = index
        self._env_seconds = env_seconds
        self._num_steps = num_steps
        self._apart = min(TIMED_STEPS, (num_steps + 1) // 2)  # of a short rollout the first step and another one
        self._rollout_ns = 0
        self._usual_ns = 0.0  # about the median of all that were timed
        self._has_outlier = False

    def begin_rollout(self) -> None:
        """The first one is timed step by step, and one after an outlier, to see whether there are more; the others as
        the one before them was."""
        is_quick = 0 < self._rollout_ns < QUICK_NS * self._num_steps
        self.every = self._apart if is_quick and not self._has_outlier else 1
        self._rollout_ns, self._has_outlier = 0, False

    def end_step(self, start: int, row: int) -> None:
        """Of a row that is timed, whose step began at `start`."""
        end, usual = now(), self._usual_ns
        took = end - start
        self._usual_ns = usual * 1.1 if took > usual else usual / 1.1
        number = self._stands_for(row)
        if number > 1 and took > OUTLIER * usual:
            self._has_outlier = True
            self._count(start, end, 1)
            self._count(end - round(usual), end, number - 1)
        else:
            self._count(start, end, number)
        self._usual_ns = self._usual_ns or float(took)

    def _stands_for(self, row: int) -> int:
        """The first step of a rollout comes after a barrier, with cold caches, and stands for itself; every other that
        is timed for those since the one before, and the last for those after it as well."""
        if self.every == 1 or row == 0:
            return 1
        is_last = row + self.every >= self._num_steps
        return self.every + (self._num_steps - 1 - row if is_last else 0)

    def _count(self, start: int, end: int, number: int) -> None:
        self._rollout_ns += number * (end - start)
        self._env_seconds[self._index] += number * (end - start) / 1e9
        self.on_steps(start, end, number)

    def end_reset(self, start: int) -> None:
        self._env_seconds[self._index] += (now() - start) / 1e9
