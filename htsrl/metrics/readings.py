"""Numbers as a reader of a terminal wants them: in words, as a bar, as a trend."""

from __future__ import annotations

import math
from collections.abc import Sequence

TREND_CELLS = "▁▂▃▄▅▆▇█"
PLAIN_TREND_CELLS = "_.-=^"


def reading(pattern: str, value: float | None) -> str | None:
    """The value in words, or None while there is none: before the first episode has ended."""
    return pattern.format(value) if value is not None and math.isfinite(value) else None


def counted(number: int, noun: str) -> str:
    """`1 seed`, `2 seeds`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def sparkline(values: Sequence[float], is_unicode: bool = True) -> str:
    """The course of some values, lowest to highest; nothing where they do not differ."""
    cells = TREND_CELLS if is_unicode else PLAIN_TREND_CELLS
    if not values or min(values) == max(values):
        return ""
    lowest, span = min(values), max(values) - min(values)
    return "".join(cells[round((value - lowest) / span * (len(cells) - 1))] for value in values)


def bar_of(share: float, cells: int, is_unicode: bool = True) -> str:
    """A share from 0 to 1 as so many cells."""
    full = round(share * cells)
    done, left = ("█", "░") if is_unicode else ("#", "-")
    return done * full + left * (cells - full)
