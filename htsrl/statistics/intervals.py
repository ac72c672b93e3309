"""How sure a mean over a few seeds is: Student's t, which covers what it says from two values on.

A percentile bootstrap does not: resampling n values cannot show more spread than they have, and its "95 %" of two
values is their range, which holds the true mean every other time. Formulas: Student,
https://doi.org/10.1093/biomet/6.1.1; the distribution in closed form: Abramowitz and Stegun, 26.7.3 and 26.7.4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean, and the interval that holds the true one in 95 of 100 repetitions of the experiment."""

    mean: float
    low: float
    high: float
    num_seeds: int

    @property
    def has_zero(self) -> bool:
        return self.low <= 0 <= self.high

    @property
    def is_constant(self) -> bool:
        """All values were the same, as with scores at their ceiling: that is no knowledge of their spread."""
        return self.low == self.high


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """mean +- t * s / sqrt(n) with n - 1 degrees of freedom; None for a single value, which shows no spread."""
    if len(values) < 2:
        return None
    sample = np.asarray(values, dtype=np.float64)
    mean = float(sample.mean())
    half = t_quantile(confidence, len(values) - 1) * float(sample.std(ddof=1)) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half, len(values))


def paired_interval(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Interval | None:
    """The mean of ours less theirs over the seeds that both have: what a seed does to both cancels out.

    The differences of pairs are independent whatever the two sides have in common, so the interval is as honest where
    a seed has the same effect on both as where it has none.
    """
    return mean_interval([ours[seed] - theirs[seed] for seed in ours if seed in theirs])


def p_value(values: Sequence[float]) -> float | None:
    """How likely a mean at least so far from 0 is where the true one is 0, by Student's t.

    None where there is no spread to compare it with: a single value, or values that are all equal.
    """
    sample = np.asarray(values, dtype=np.float64)
    if len(sample) < 2 or not (deviation := float(sample.std(ddof=1))):
        return None
    degrees = len(sample) - 1
    t = abs(float(sample.mean())) * math.sqrt(len(sample)) / deviation
    return 1 - _probability_within(math.atan(t / math.sqrt(degrees)), degrees)


def shown_together(p_values: Mapping[str, float], confidence: float = CONFIDENCE) -> list[str]:
    """Those of several hypotheses that are shown, all of them rightly in 95 of 100 repetitions of the experiment.

    Holm's step-down procedure (Scandinavian Journal of Statistics 6, 1979): the least of m p-values is held against
    0.05 / m, the next against 0.05 / (m - 1), up to the first that fails.
    """
    shown = []
    for number, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        if p_values[name] > (1 - confidence) / (len(p_values) - number):
            break
        shown.append(name)
    return [name for name in p_values if name in shown]


@cache
def t_quantile(confidence: float, degrees: int) -> float:
    """The t within which Student's distribution lies with this probability, to either side of 0."""
    if not 0 < confidence < 1 or degrees < 1:
        raise ValueError(f"confidence={confidence} must be between 0 and 1, degrees={degrees} at least 1")
    # t = sqrt(degrees) * tan(angle), and the angle is bounded where t is not.
    low, high = 0.0, math.pi / 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _probability_within(middle, degrees) < confidence else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def _probability_within(angle: float, degrees: int) -> float:
    """P(|T| < sqrt(degrees) * tan(angle)): a finite sum of powers of the cosine for whole degrees of freedom."""
    cosine, sine = math.cos(angle), math.sin(angle)
    term, total = (cosine, 0.0) if degrees % 2 else (1.0, 0.0)
    for power in range(degrees % 2, degrees - 1, 2):
        total += term
        term *= (power + 1) / (power + 2) * cosine**2
    return 2 / math.pi * (angle + sine * total) if degrees % 2 else sine * total
