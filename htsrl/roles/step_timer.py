"""Times the steps of one environment: all of them where they take long, one in sixteen where they are quick."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns as now

import numpy as np
from numpy.typing import NDArray

TIMED_STEPS = 16
"""Of quick steps one of so many is timed: looking at the clock and keeping what it said take half a microsecond."""
QUICK_NS = 100_000

OnSteps = Callable[[int, int, int], None]
"""When a step began and ended, and for how many steps it stands, those after it that were not timed among them."""


class StepTimer:
    """What a step was timed for never changes: the sum over a rollout's steps is over all of them."""

    def __init__(self, index: int, env_seconds: NDArray[np.float64], num_steps: int) -> None:
        self.every = 1
        """Steps are timed in the rows that this divides."""
        self.on_steps: OnSteps = lambda start, end, number: None
        self._index = index
        self._env_seconds = env_seconds
        self._num_steps = num_steps
        self._rollout_ns = 0

    def begin_rollout(self) -> None:
        """The first one is timed step by step, the others as the one before them was."""
        is_quick = 0 < self._rollout_ns < QUICK_NS * self._num_steps
        self.every = TIMED_STEPS if is_quick else 1
        self._rollout_ns = 0

    def end_step(self, start: int, row: int) -> None:
        """Of a row that is timed, whose step began at `start`."""
        end, number = now(), min(self.every, self._num_steps - row)
        self._rollout_ns += number * (end - start)
        self._env_seconds[self._index] += number * (end - start) / 1e9
        self.on_steps(start, end, number)

    def end_reset(self, start: int) -> None:
        self._env_seconds[self._index] += (now() - start) / 1e9
