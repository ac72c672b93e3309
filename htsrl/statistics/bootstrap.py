"""How sure an aggregate over tasks is: the stratified bootstrap of rliable (https://arxiv.org/abs/2108.13264)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from htsrl.statistics.aggregates import Floats
from htsrl.statistics.intervals import CONFIDENCE

REPETITIONS = 2000
Aggregate = Callable[[Floats], float | Sequence[float]]


def stratified_interval(
    scores_by_task: Sequence[Sequence[float]],
    aggregate: Aggregate,
    repetitions: int = REPETITIONS,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> tuple[Floats, Floats]:
    """Percentiles of the aggregate when the runs of every task are drawn again, with replacement and by themselves.

    The aggregate gets all scores in one row, for tasks may have different numbers of runs. The same seed, the same
    interval.
    """
    strata = [np.asarray(scores, dtype=np.float64) for scores in scores_by_task]
    generator = np.random.default_rng(seed)
    drawn = []
    for _ in range(repetitions):
        again = [scores[generator.integers(len(scores), size=len(scores))] for scores in strata]
        drawn.append(aggregate(np.concatenate(again)[None]))
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(np.asarray(drawn, dtype=np.float64), [tail, 100 - tail], axis=0)
    return low, high
