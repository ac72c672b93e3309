"""Which environments hold the others up: the one rule of terminal, timeline and dashboard."""

from __future__ import annotations

import math
from collections.abc import Sequence

RATIO = 1.5
"""An environment that takes so many times the median over all environments is a straggler,"""
SHARE = 0.25
"""and is as much slower than the median as this share of what the slowest one is."""


def median(numbers: Sequence[float]) -> float:
    """Of any numbers, of two in the middle the lower; 0 of none."""
    ordered = sorted(number for number in numbers if math.isfinite(number))
    return ordered[(len(ordered) - 1) // 2] if ordered else 0.0


def times_median(seconds: Sequence[float]) -> list[float]:
    """How many times the median each is; 0 where there is none to speak of."""
    usual = median(seconds)
    return [one / usual if usual > 0 else 0.0 for one in seconds]


def are_stragglers(ratios: Sequence[float]) -> list[bool]:
    """Of environments by their times of the median."""
    # Beside one that is 50 times as slow, one that is twice as slow holds up nobody.
    limit = max(RATIO, 1 + SHARE * (max(ratios, default=0.0) - 1))
    return [ratio >= limit for ratio in ratios]
