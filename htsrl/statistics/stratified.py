"""How sure an aggregate over several tasks is, from a few runs of each: Student's t with strata.

rliable (https://arxiv.org/abs/2108.13264) draws the runs of every task again instead. Of few runs that shows less
spread than they have: where it says 95 %, it holds the true mean in 53 % of the cases with 2 runs of one task, and in
73 % with 2 runs of each of 8 (`unit/test_intervals.py` simulates both). The spread of a trimmed mean is that of what it
leaves, with the ends in place of what it cuts: Tukey and McLaughlin, Sankhya A 25 (1963); degrees of freedom over
strata: Satterthwaite, https://doi.org/10.2307/3002019.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from htsrl.statistics.aggregates import Floats, interquartile_mean, performance_profile
from htsrl.statistics.intervals import CONFIDENCE, Interval, t_quantile

Scores = Sequence[Sequence[float]]
"""By task; tasks may have different numbers of runs."""
MIN_RUNS = 5
"""Of several tasks: the middle half of four runs may be one of each task, and shows no spread at all."""


def interquartile_interval(scores_by_task: Scores) -> Interval | None:
    """The interquartile mean of all scores, and the interval that holds the true one in 95 of 100 repetitions.

    None where a task has a single run, or there are too few to know.
    """
    strata = [np.asarray(scores, dtype=np.float64) for scores in scores_by_task]
    if not _shows_spread(strata):
        return None
    influences = [_Influence.on_the_middle(scores, strata) for scores in strata]
    half = _half_width([one.values for one in influences], [int(one.is_left.sum()) for one in influences])
    mean = interquartile_mean(np.concatenate(strata)[None])
    return Interval(mean, mean - half, mean + half, min(map(len, strata)))


def interquartile_difference(ours_by_task: Scores, theirs_by_task: Scores) -> Interval | None:
    """The interquartile mean of ours less that of theirs, where a run of each has a seed in common, in order.

    None where an interval of either is. What a seed does to both runs cancels out, as in `paired_interval`.
    """
    sides = [[np.asarray(scores, dtype=np.float64) for scores in by_task] for by_task in (ours_by_task, theirs_by_task)]
    if not all(map(_shows_spread, sides)):
        return None
    ours, theirs = ([_Influence.on_the_middle(scores, strata) for scores in strata] for strata in sides)
    pairs = list(zip(ours, theirs, strict=True))
    left = [int((one.is_left | other.is_left).sum()) for one, other in pairs]
    half = _half_width([one.values - other.values for one, other in pairs], left)
    own, other = (interquartile_mean(np.concatenate(strata)[None]) for strata in sides)
    return Interval(own - other, own - other - half, own - other + half, min(map(len, sides[0])))


def _shows_spread(strata: Sequence[Floats]) -> bool:
    total = sum(map(len, strata))
    return min(map(len, strata)) >= 2 and (len(strata) == 1 or total >= MIN_RUNS)


@dataclass(frozen=True)
class _Influence:
    """Of a task's scores on the interquartile mean of all: those beyond the middle half count as its ends."""

    values: Floats
    is_left: NDArray[np.bool_]

    @classmethod
    def on_the_middle(cls, scores: Floats, strata: Sequence[Floats]) -> _Influence:
        every = np.sort(np.concatenate(strata))
        cut = len(every) // 4
        low, high = every[cut], every[len(every) - cut - 1]
        scale = len(every) / (len(every) - 2 * cut)
        return cls(np.clip(scores, low, high) * scale, (scores >= low) & (scores <= high))


def profile_band(scores_by_task: Scores, thresholds: Sequence[float]) -> tuple[Floats, Floats] | None:
    """Of the share of runs above each threshold, one threshold at a time; no width where the runs of a task agree.

    So it says how far runs disagree and no more: a share of a few runs has no interval that covers 95 %. None where a
    task has a single run.
    """
    strata = [np.asarray(scores, dtype=np.float64) for scores in scores_by_task]
    if min(map(len, strata)) < 2:
        return None
    numbers = [len(scores) for scores in strata]
    shares = np.array(performance_profile(np.concatenate(strata)[None], thresholds))
    halves = [_half_width([(scores > at).astype(np.float64) for scores in strata], numbers) for at in thresholds]
    return np.clip(shares - halves, 0.0, 1.0), np.clip(shares + halves, 0.0, 1.0)


def _half_width(strata: Sequence[Floats], independent: Sequence[int]) -> float:
    """Of the interval of the mean over all values, of which so many in each stratum are independent."""
    total = sum(map(len, strata))
    variances = np.array([len(values) * values.var(ddof=1) / total**2 for values in strata])
    if not variances.any():
        return 0.0
    degrees = np.maximum(np.array(independent) - 1, 1)
    whole = math.floor(variances.sum() ** 2 / (variances**2 / degrees).sum() + 1e-9)  # rounded to the wider side
    return t_quantile(CONFIDENCE, whole) * math.sqrt(variances.sum())
