"""Times one environment: how long its steps and resets take, and when its rollouts end."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns as now
from typing import Any, TypeVar

import numpy as np

from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.timeline.arrays import NUM_BINS, EnvWord
from htsrl.timeline.kinds import Kind
from htsrl.timeline.track import LONG_NS, Track

MAX_UNCOUNTED = 1024
COUNT_NS = 1_000_000_000
RESETS, RESET_NS, RESET_MAX_NS = int(EnvWord.RESETS), int(EnvWord.RESET_NS), int(EnvWord.RESET_MAX_NS)
Call = TypeVar("Call", bound=Callable[..., Any])


class EnvClock:
    """It is told of steps that were timed, and counts many at a time.

    A worker that is killed loses what was not counted yet, at most about a second's.
    """

    def __init__(self, block: SharedArrays, env: int, track: Track) -> None:
        self._env = env
        self._row = block["timeline_envs"][env]
        self._words = memoryview(self._row)  # several times as fast as an array, number by number
        self._rollouts = memoryview(block["timeline_rollouts"][env].reshape(-1))
        self._depth = len(block["timeline_rollouts"][env])
        self._track = track
        self._durations: list[int] = []  # of steps that are not counted yet
        self._numbers: list[int] = []  # for how many steps each of them stands
        self._inside_ns = 0  # steps and resets of this rollout
        self._last_count = now()

    def add_steps(self, start: int, end: int, number: int) -> None:
        """One step, which stands for so many that took about as long."""
        duration = end - start
        self._durations.append(duration)
        self._numbers.append(number)
        self._inside_ns += number * duration
        if duration >= LONG_NS:
            self._track.add(Kind.STEP, start, end, self._env)
            number -= 1
        if number:
            self._track.add_short(Kind.STEP, number * duration, number, end)
        if len(self._durations) >= MAX_UNCOUNTED or end - self._last_count >= COUNT_NS:
            self.count()

    def timed_reset(self, reset: Call) -> Call:
        words = self._words

        def timed(*arguments: Any) -> Any:
            start = now()
            info = reset(*arguments)
            end = now()
            self._inside_ns += end - start
            words[RESETS] += 1
            words[RESET_NS] += end - start
            words[RESET_MAX_NS] = max(words[RESET_MAX_NS], end - start)
            self._track.add(Kind.RESET, start, end, self._env)
            return info

        return timed  # type: ignore[return-value]

    def end_rollout(self, rollout: int, end: int) -> None:
        """Before it counts, so that whoever sees it complete sees when that was."""
        place = 2 * (rollout % self._depth)
        self._rollouts[place] = end
        self._rollouts[place + 1] = self._inside_ns
        self._inside_ns = 0

    def count(self) -> None:
        """Put the steps so far into the environment's row."""
        self._last_count = now()
        if not self._durations:
            return
        row = self._row
        durations, numbers = np.array(self._durations, np.int64), np.array(self._numbers, np.int64)
        self._durations.clear()
        self._numbers.clear()
        # frexp's exponent is the number of bits of a whole number.
        bins = np.minimum(np.frexp(durations.astype(np.float64))[1], NUM_BINS - 1)
        np.add.at(row[len(EnvWord) :], bins, numbers)
        row[EnvWord.STEP_NS] += durations @ numbers
        row[EnvWord.STEP_MAX_NS] = max(row[EnvWord.STEP_MAX_NS], durations.max())
