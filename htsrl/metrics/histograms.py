"""How returns and lengths of the last episodes are spread, as counts in bins of equal width."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

NUM_BINS = 16
RETURNS, LENGTHS = "rollout/ep_rew", "rollout/ep_len"


@dataclass(frozen=True)
class Histogram:
    """Bin i of n holds the values from low + i * width to low + (i + 1) * width, the last its upper end too."""

    low: float
    high: float
    counts: tuple[int, ...]
    total: float
    sum_of_squares: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Histogram | None:
        """Of the finite ones; None where there are none."""
        array = np.array([*values], np.float64)
        array = array[np.isfinite(array)]
        if not len(array):
            return None
        low, high = float(array.min()), float(array.max())
        counts = (len(array),) if low == high else np.histogram(array, NUM_BINS, (low, high))[0].tolist()
        return cls(low, high, tuple(counts), float(array.sum()), float((array**2).sum()))

    @property
    def upper_edges(self) -> list[float]:
        width = (self.high - self.low) / len(self.counts)
        return [self.low + width * number for number in range(1, len(self.counts))] + [self.high]

    def document(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high, "counts": list(self.counts)}


Histograms = Mapping[str, Histogram]


def episode_histograms(rows: Iterable[tuple[float, ...]]) -> dict[str, Histogram]:
    """Of episodes as (return, length, ...)."""
    kept = list(rows)
    found = {RETURNS: Histogram.of(row[0] for row in kept), LENGTHS: Histogram.of(row[1] for row in kept)}
    return {name: histogram for name, histogram in found.items() if histogram is not None}
