"""Several curves as one: their mean, and where the true mean lies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from htsrl.statistics.aggregates import Floats
from htsrl.statistics.intervals import CONFIDENCE, t_quantile

NUM_POINTS = 160


@dataclass(frozen=True)
class Band:
    """A mean over seeds at every place, with the interval of Student's t, or none for a single curve."""

    places: Floats
    mean: Floats
    low: Floats
    high: Floats
    num_curves: int


def band_over(curves: Sequence[tuple[Floats, Floats]], num_points: int = NUM_POINTS) -> Band | None:
    """Of curves `(places, values)`, between the last of their beginnings and the first of their ends.

    None where they have no place in common.
    """
    start, end = max(places[0] for places, _ in curves), min(places[-1] for places, _ in curves)
    if start > end:
        return None
    places = np.linspace(start, end, num_points if end > start else 1)
    values = np.stack([np.interp(places, at, value) for at, value in curves])
    mean = values.mean(axis=0)
    if len(curves) < 2:
        return Band(places, mean, mean, mean, 1)
    half = t_quantile(CONFIDENCE, len(curves) - 1) * values.std(axis=0, ddof=1) / math.sqrt(len(curves))
    return Band(places, mean, mean - half, mean + half, len(curves))
