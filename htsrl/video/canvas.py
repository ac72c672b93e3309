"""Colours, letters and the few shapes that films are drawn with."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

BACKGROUND = (20, 24, 31)
FRAME_BACKGROUND = (12, 14, 18)
TRACK = (42, 49, 60)
TEXT = (232, 236, 241)
FAINT = (150, 160, 173)
ACCENT = (86, 180, 233)
CHOSEN = (240, 180, 60)
GRID = (54, 62, 74)
Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


@cache
def font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


def blank(width: int, height: int, colour: tuple[int, int, int] = BACKGROUND) -> Image:
    from PIL import Image

    return Image.new("RGB", (width, height), colour)


def draw_on(image: Image) -> ImageDraw:
    from PIL import ImageDraw

    return ImageDraw.Draw(image)


def write(
    draw: ImageDraw, at: tuple[float, float], text: str, size: int, colour: Any = TEXT, anchor: str = "la"
) -> None:
    draw.text(at, text, fill=colour, font=font(size), anchor=anchor)


def fitted(text: str, size: int, width: float) -> str:
    """The text, cut where it is too wide."""
    if font(size).getlength(text) <= width:
        return text
    while text and font(size).getlength(text + "…") > width:
        text = text[:-1]
    return text.rstrip() + "…"


def curve(draw: ImageDraw, box: Box, values: Sequence[float], bounds: tuple[float, float], colour: Any) -> None:
    """A line through the values, which are spread over the whole width; gaps where they are not finite."""
    left, top, right, bottom = box
    low, high = bounds
    scale = (bottom - top) / (high - low or 1.0)
    step = (right - left) / max(len(values) - 1, 1)
    run: list[tuple[float, float]] = []
    for i, value in enumerate([*values, float("nan")]):
        if np.isfinite(value):
            run.append((left + i * step, bottom - (min(max(value, low), high) - low) * scale))
            continue
        if len(run) > 1:
            draw.line(run, fill=colour, width=2, joint="curve")
        elif run:
            x, y = run[0]
            draw.ellipse((x - 1.5, y - 1.5, x + 1.5, y + 1.5), fill=colour)
        run = []


def bounds_of(values: NDArray[Any]) -> tuple[float, float]:
    """The least and the largest, with a little room; of numbers that are all the same, some."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return -1.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    room = (high - low) * 0.05 or max(abs(high), 1.0) * 0.1
    return low - room, high + room


def number(value: float) -> str:
    """Short, and of about the same width from frame to frame."""
    if not np.isfinite(value):
        return str(value)
    return f"{value:.3g}" if abs(value) >= 1e5 or 0 < abs(value) < 1e-3 else f"{value:.2f}"
