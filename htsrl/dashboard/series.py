"""One metric of one run, thinned for show: buckets that keep every extreme, in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

CAPACITY = 1024
"""Buckets of a series at most; when they are full, neighbours become one."""
FLOAT_DIGITS = 7

Floats = NDArray[np.float64]


class Series:
    """Grows at its end. A bucket holds `stride` points: its last step and time, their mean, lowest and highest value.

    As long as there are fewer points than buckets, nothing is thinned.
    """

    def __init__(self) -> None:
        self.num_points = 0
        self.stride = 1
        self._steps = np.zeros(CAPACITY)
        self._seconds = np.zeros(CAPACITY)
        self._sums = np.zeros(CAPACITY)
        self._lows = np.full(CAPACITY, np.inf)
        self._highs = np.full(CAPACITY, -np.inf)

    def extend(self, steps: Floats, seconds: Floats, values: Floats) -> None:
        """Add finite values in the order in which the run wrote them."""
        if not len(values):
            return
        positions = self.num_points + np.arange(len(values))
        while positions[-1] // self.stride >= CAPACITY:
            self._halve()
        buckets = positions // self.stride
        self._steps[buckets] = steps  # of several points in a bucket, the last stays
        self._seconds[buckets] = seconds
        np.add.at(self._sums, buckets, values)
        np.minimum.at(self._lows, buckets, values)
        np.maximum.at(self._highs, buckets, values)
        self.num_points += len(values)

    def view(self, max_buckets: int) -> dict[str, Any]:
        """As lists for JSON, in at most so many buckets; `low` and `high` are absent where nothing was thinned."""
        used = -(-self.num_points // self.stride)
        merged = max(1, -(-used // max(1, max_buckets)))
        starts = np.arange(0, used, merged)
        ends = np.minimum(starts + merged, used)
        counts = np.minimum(ends * self.stride, self.num_points) - starts * self.stride
        view = {
            "step": [int(step) for step in self._steps[ends - 1]],
            "seconds": _listed(self._seconds[ends - 1]),
            "mean": _listed(np.add.reduceat(self._sums[:used], starts) / counts) if used else [],
            "stride": self.stride * merged,
            "points": self.num_points,
        }
        if used and self.stride * merged > 1:
            view["low"] = _listed(np.minimum.reduceat(self._lows[:used], starts))
            view["high"] = _listed(np.maximum.reduceat(self._highs[:used], starts))
        return view

    def seconds_at(self, steps: Sequence[float]) -> list[float | None]:
        """The time at each of some steps, between those that are known."""
        used = -(-self.num_points // self.stride)
        return _listed(np.interp(steps, self._steps[:used], self._seconds[:used])) if used else [None] * len(steps)

    def _halve(self) -> None:
        """Two neighbours become one bucket, and the last of a full array is whole: the capacity is even."""
        half = CAPACITY // 2
        used = -(-self.num_points // self.stride)
        last = np.minimum(np.arange(1, CAPACITY, 2), max(used - 1, 0))
        self._steps[:half], self._seconds[:half] = self._steps[last], self._seconds[last]
        self._sums[:half] = self._sums[::2] + self._sums[1::2]
        self._lows[:half] = np.minimum(self._lows[::2], self._lows[1::2])
        self._highs[:half] = np.maximum(self._highs[::2], self._highs[1::2])
        self._sums[half:], self._lows[half:], self._highs[half:] = 0, np.inf, -np.inf
        self.stride *= 2


def _listed(values: Floats) -> list[float | None]:
    """Rounded to what an eye can see; a sum that overflowed is null."""
    return [float(f"{value:.{FLOAT_DIGITS}g}") if abs(value) < np.inf else None for value in values.tolist()]
