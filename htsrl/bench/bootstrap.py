"""How sure a difference between two small samples is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

NUM_RESAMPLES = 20_000


@dataclass(frozen=True)
class Difference:
    """The difference of two means, with the interval that holds it in 95 of 100 cases."""

    mean: float
    low: float
    high: float

    @property
    def within_noise(self) -> bool:
        return self.low <= 0 <= self.high


def bootstrap_difference(ours: Sequence[float], theirs: Sequence[float], seed: int = 0) -> Difference:
    """mean(ours) - mean(theirs), and the percentile bootstrap's 95 % interval; each side is resampled by itself."""
    generator = np.random.default_rng(seed)
    means = [
        generator.choice(np.asarray(values, dtype=np.float64), (NUM_RESAMPLES, len(values))).mean(axis=1)
        for values in (ours, theirs)
    ]
    low, high = np.quantile(means[0] - means[1], [0.025, 0.975])
    return Difference(float(np.mean(ours) - np.mean(theirs)), float(low), float(high))
