"""Numbers over seeds in words, for the page and the result card."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from htsrl.reports.summary import Cell


def plain_number(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 1e5 else f"{value:,.0f}"


def value_words(value: Any) -> str:
    """A setting or a score as people write it."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def seconds_words(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.3g} min"


def final_words(cell: Cell) -> str:
    """The mean, with its interval where several seeds show one."""
    interval = cell.final
    mean = plain_number(float(np.mean(cell.finals)))
    if interval is None:
        return f"{mean} (one seed)"
    return f"{mean} ({plain_number(interval.low)} to {plain_number(interval.high)})"


def over_seeds(values: Sequence[float | None], words: Callable[[float], str] = plain_number) -> str:
    """The mean of those that have a value, and how many do not."""
    known = [value for value in values if value is not None]
    if not known:
        return f"none of {len(values)}"
    mean = words(float(np.mean(known)))
    return mean if len(known) == len(values) else f"{mean} ({len(known)} of {len(values)} seeds)"
