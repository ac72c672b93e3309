"""A learning curve, and the paper's three numbers of one (HTS-RL, https://arxiv.org/abs/2012.09849)."""

from __future__ import annotations

import numpy as np

Curve = tuple[tuple[int, float, float], ...]
"""(step, mean return of the last 100 training episodes, seconds since the start), at least one."""
LAST_SHARE = 0.1
"""The part of training, at its end, that counts as final."""


def mean_over(curve: Curve) -> float:
    """The area under a learning curve, over its length: early learners score higher."""
    steps, returns, _ = np.asarray(curve, dtype=np.float64).T
    return float(np.trapezoid(returns, steps) / (steps[-1] - steps[0])) if len(steps) > 1 else float(returns[0])


def final_return(curve: Curve, share: float = LAST_SHARE) -> float:
    """The paper's final metric: the mean over the last `share` of the steps."""
    begin = (1 - share) * curve[-1][0]
    return float(np.mean([value for step, value, _ in curve if step > begin] or [curve[-1][1]]))


def final_at_budget(curve: Curve, seconds: float, share: float = LAST_SHARE) -> float | None:
    """The final metric of what was trained within so many seconds; None where no episode had ended by then."""
    within = tuple(point for point in curve if point[2] <= seconds)
    return final_return(within, share) if within else None


def seconds_to(curve: Curve, target: float) -> float | None:
    """When the mean return first reached the target; None where it never did."""
    return next((seconds for _, value, seconds in curve if value >= target), None)
