"""Many runs on many tasks in a few numbers, as rliable defines them (Agarwal et al., https://arxiv.org/abs/2108.13264).

Scores are `[runs, tasks]` and comparable between tasks, each normalised by its task's scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


def interquartile_mean(scores_RT: Floats) -> float:
    """The mean of the middle half of all scores: a quarter of them, rounded down, is left out at either end."""
    ordered = np.sort(scores_RT, axis=None)
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def probability_of_improvement(ours_RT: Floats, theirs_RT: Floats) -> float:
    """How likely a run of ours is better than one of theirs on a task drawn at random; a tie counts half.

    The two may have different numbers of runs.
    """
    better = (ours_RT[:, None] > theirs_RT[None]).mean(axis=(0, 1))
    equal = (ours_RT[:, None] == theirs_RT[None]).mean(axis=(0, 1))
    return float(np.mean(better + equal / 2))


def performance_profile(scores_RT: Floats, thresholds: Sequence[float]) -> list[float]:
    """For every threshold the share of runs, on all tasks, that score above it."""
    return [float((scores_RT > threshold).mean()) for threshold in thresholds]
