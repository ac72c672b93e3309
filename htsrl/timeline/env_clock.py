"""Times one environment: how long its steps and resets take, and when its rollouts end."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns as now
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.timeline.arrays import NUM_BINS, EnvWord
from htsrl.timeline.kinds import Kind
from htsrl.timeline.track import LONG_NS, Track

MAX_UNCOUNTED = 1024
COUNT_NS = 1_000_000_000
RESETS, RESET_NS, RESET_MAX_NS = int(EnvWord.RESETS), int(EnvWord.RESET_NS), int(EnvWord.RESET_MAX_NS)
Call = TypeVar("Call", bound=Callable[..., Any])


class EnvClock:
    """A short step costs two readings of the clock and an append; they are counted many at a time.

    A worker that is killed loses what was not counted yet, at most about a second's.
    """

    def __init__(self, block: SharedArrays, env: int, track: Track) -> None:
        self._env = env
        self._row = block["timeline_envs"][env]
        self._words = memoryview(self._row)  # several times as fast as an array, number by number
        self._rollouts = memoryview(block["timeline_rollouts"][env].reshape(-1))
        self._depth = len(block["timeline_rollouts"][env])
        self._track = track
        self._durations: list[int] = []  # of short steps that are not counted yet
        self._num_summed = 0  # so many of them are in the sums that follow
        self._window = (0, 0)  # nanoseconds and number of short steps since the track's window began
        self._inside_ns = 0  # steps and resets of this rollout
        self._last_count = now()
        track.ask_for_steps(self._end_window)

    def timed_step(self, step: Call) -> Call:
        """The same function; nothing of its arguments or its outcome is looked at."""
        append, add_long = self._durations.append, self._add_long

        def timed(action: Any, rows: Any) -> Any:
            start = now()
            outcome = step(action, rows)
            duration = now() - start
            if duration < LONG_NS:
                append(duration)
            else:
                add_long(start, duration)
            return outcome

        return timed  # type: ignore[return-value]

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
        self._sum_new()
        place = 2 * (rollout % self._depth)
        self._rollouts[place] = end
        self._rollouts[place + 1] = self._inside_ns
        self._inside_ns = 0

    def count(self) -> None:
        """Put the short steps so far into the environment's row."""
        self._sum_new()
        if self._durations:
            self._add_to_row(np.array(self._durations, np.int64))
            self._durations.clear()
            self._num_summed = 0
        self._last_count = now()

    def _add_long(self, start: int, duration: int) -> None:
        self._track.add(Kind.STEP, start, start + duration, self._env)
        self._inside_ns += duration
        self._add_to_row(np.array([duration], np.int64))

    def _add_to_row(self, durations: NDArray[np.int64]) -> None:
        row = self._row
        # frexp's exponent is the number of bits of a whole number.
        bins = np.minimum(np.frexp(durations.astype(np.float64))[1], NUM_BINS - 1)
        row[len(EnvWord) :] += np.bincount(bins, minlength=NUM_BINS)
        row[EnvWord.STEP_NS] += durations.sum()
        row[EnvWord.STEP_MAX_NS] = max(row[EnvWord.STEP_MAX_NS], durations.max())

    def _sum_new(self) -> None:
        new = self._durations[self._num_summed :]
        spent, (window_ns, window_steps) = sum(new), self._window
        self._num_summed += len(new)
        self._inside_ns += spent
        self._window = window_ns + spent, window_steps + len(new)

    def _end_window(self, end: int) -> tuple[int, int]:
        """Nanoseconds and number of short steps in the window that ends."""
        if len(self._durations) > self._num_summed:
            self._sum_new()
        elif not self._window[1]:
            return self._window
        window, self._window = self._window, (0, 0)
        if len(self._durations) >= MAX_UNCOUNTED or end - self._last_count >= COUNT_NS:
            self.count()
        return window
