"""Actions between two kinds of row: as policies store what they drew, and in the environment's terms, as in datasets.

They differ only in the continuous dimensions that are squashed into their bounds: policies store those as they were
before the hyperbolic tangent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.spaces.actions import ActionLayout

SATURATED = 1 - 1e-4
"""Beyond this share of its range an action is taken for one there: at the bound itself its tangent is infinite."""


def in_env_terms(layout: ActionLayout, stored: NDArray[Any]) -> NDArray[Any]:
    """Rows of stored actions as the environment is given them, within their bounds."""
    if not layout.num_continuous:
        return stored
    rows, drawn = _with_continuous(layout, stored)
    half = np.nan_to_num(layout.half_ranges)
    floor = np.where(layout.squashed, layout.low, 0.0)
    taken = np.where(layout.squashed, floor + (np.tanh(drawn.astype(np.float64)) + 1) * half, drawn)
    drawn[...] = np.minimum(np.maximum(taken, layout.low), layout.high)
    return rows


def as_stored(layout: ActionLayout, rows: NDArray[Any]) -> NDArray[Any]:
    """The inverse, for rows of a dataset."""
    if not layout.squashed.any():
        return rows
    stored, taken = _with_continuous(layout, rows)
    columns = layout.squashed
    share = (taken[:, columns].astype(np.float64) - layout.low[columns]) / layout.half_ranges[columns] - 1
    taken[:, columns] = np.arctanh(np.clip(share, -SATURATED, SATURATED))
    return stored


def _with_continuous(layout: ActionLayout, rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """A copy, and its continuous columns as a view."""
    copy = np.array(rows, layout.dtype)
    return copy, copy[:, len(layout.categories) :]
