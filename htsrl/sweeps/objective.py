"""What a trial is worth, from the curves of its runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from htsrl.statistics.curve import Curve, final_return, mean_over
from htsrl.sweeps.spec import Search


def value_of(curve: Curve, search: Search) -> float | None:
    """One run's objective; None where no episode ended. Evaluations are not read from curves."""
    if not curve:
        return None
    if search.objective == "area":
        return mean_over(curve)
    return curve[-1][1] if search.objective == "final" else final_return(curve, search.share)


def mean_of(values: Sequence[float | None]) -> float | None:
    """Over the seeds; None where one has none."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None
