"""The panel beside the frame: step, return, value with its curve, and what the policy thinks of its actions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from htsrl.video.canvas import (
    ACCENT,
    BACKGROUND,
    CHOSEN,
    FAINT,
    TEXT,
    TRACK,
    Box,
    blank,
    bounds_of,
    curve,
    draw_on,
    fitted,
    number,
    write,
)
from htsrl.video.scene import Scene, Shot, continuous_parts

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

WIDTH = 300
MIN_HEIGHT = 360
MARGIN = 16
ROW = 22
CURVE_STEPS = 200
"""How many of the last steps curves show."""
MAX_NAMED = 18
"""A choice among more values is shown without their names."""


class Panel:
    """Draws the panel of a shot; what all shots share is worked out once."""

    def __init__(self, scene: Scene, height: int) -> None:
        self._scene = scene
        self._height = height
        self._values = np.array([np.nan if shot.value is None else shot.value for shot in scene.shots])
        self._value_bounds = bounds_of(self._values)
        self._ranges = _ranges(scene)

    def draw(self, index: int) -> Image:
        shot = self._scene.shots[index]
        image = blank(WIDTH, self._height, BACKGROUND)
        draw = draw_on(image)
        below = self._draw_head(draw, shot)
        below = self._draw_value(draw, index, below)
        self._draw_actions(draw, shot, below)
        return image

    def _draw_head(self, draw: ImageDraw, shot: Shot) -> float:
        inner = WIDTH - 2 * MARGIN
        write(draw, (MARGIN, 12), fitted(self._scene.title, 17, inner), 17)
        write(draw, (MARGIN, 35), fitted(self._scene.subtitle, 12, inner), 12, FAINT)
        write(draw, (MARGIN, 62), "step", 12, FAINT)
        write(draw, (MARGIN, 76), f"{shot.step:,}", 20)
        write(draw, (MARGIN + 92, 62), "return", 12, FAINT)
        write(draw, (MARGIN + 92, 76), _score(shot.score), 20, CHOSEN)
        if shot.note:
            write(draw, (WIDTH - MARGIN, 80), fitted(shot.note, 13, 92), 13, CHOSEN, anchor="ra")
        return 110.0

    def _draw_value(self, draw: ImageDraw, index: int, top: float) -> float:
        value = self._scene.shots[index].value
        write(draw, (MARGIN, top), "value", 12, FAINT)
        if value is not None:
            write(draw, (WIDTH - MARGIN, top - 2), number(value), 14, ACCENT, anchor="ra")
        box: Box = (MARGIN, top + 18, WIDTH - MARGIN, top + 62)
        draw.rounded_rectangle(box, 4, fill=TRACK)
        shown = self._values[max(0, index + 1 - CURVE_STEPS) : index + 1]
        width = (box[2] - box[0] - 8) * max(len(shown) - 1, 0) / (min(CURVE_STEPS, max(len(self._values), 2)) - 1)
        inner: Box = (box[0] + 4, box[1] + 4, box[0] + 4 + width, box[3] - 4)
        curve(draw, inner, shown.tolist(), self._value_bounds, ACCENT)
        return box[3] + 14

    def _draw_actions(self, draw: ImageDraw, shot: Shot, top: float) -> None:
        layout = self._scene.interface.actions
        write(draw, (MARGIN, top), "action", 12, FAINT)
        top += 18
        room = self._height - top - 10
        if layout.is_single_choice and layout.categories[0] <= min(MAX_NAMED, max(room / 13, 1)):
            self._draw_named(draw, shot, top, room)
            return
        rows = len(layout.categories) + layout.num_continuous
        height = min(max(room / rows, 12.0), 34.0)
        for row in range(int(min(rows, room // height))):
            box: Box = (MARGIN, top + row * height, WIDTH - MARGIN, top + (row + 1) * height - 4)
            if row < len(layout.categories):
                self._draw_choice(draw, shot, row, box)
            else:
                self._draw_dimension(draw, shot, row - len(layout.categories), box)

    def _draw_named(self, draw: ImageDraw, shot: Shot, top: float, room: float) -> None:
        """A bar for every value of the only choice."""
        count = self._scene.interface.actions.categories[0]
        height = min(room / count, ROW)
        names = self._scene.action_names if len(self._scene.action_names) == count else [str(i) for i in range(count)]
        size = 13 if height >= 18 else 10
        label = min(86.0, 12 + max(_width(name, size) for name in names))
        for i, name in enumerate(names):
            y, is_chosen = top + i * height, shot.action is not None and int(shot.action) == i
            colour = CHOSEN if is_chosen else ACCENT
            write(
                draw, (MARGIN, y + height / 2), fitted(name, size, label - 6), size, colour if is_chosen else TEXT, "lm"
            )
            bar: Box = (MARGIN + label, y + 3, WIDTH - MARGIN - 42, y + height - 3)
            draw.rounded_rectangle(bar, 3, fill=TRACK)
            if shot.probabilities is None:
                continue
            share = float(shot.probabilities[i])
            if (bar[2] - bar[0]) * share >= 1:
                draw.rounded_rectangle((bar[0], bar[1], bar[0] + (bar[2] - bar[0]) * share, bar[3]), 3, fill=colour)
            write(draw, (WIDTH - MARGIN, y + height / 2), f"{100 * share:.0f} %", size, FAINT, "rm")

    def _draw_choice(self, draw: ImageDraw, shot: Shot, choice: int, box: Box) -> None:
        """A column for every value of one choice among several, or of one with many values."""
        categories = self._scene.interface.actions.categories
        first, count = [0, *accumulate(categories)][choice], categories[choice]
        left, top, right, bottom = box
        draw.rounded_rectangle(box, 3, fill=TRACK)
        if shot.probabilities is None:
            return
        chosen = None if shot.action is None else int(np.atleast_1d(shot.action)[choice])
        width = (right - left) / count
        for i, share in enumerate(shot.probabilities[first : first + count].tolist()):
            height = max((bottom - top) * share, 1.0 if i != chosen else 3.0)
            column = (left + i * width + (width > 3), bottom - height, left + (i + 1) * width - (width > 3), bottom)
            draw.rectangle(column, fill=CHOSEN if i == chosen else ACCENT)

    def _draw_dimension(self, draw: ImageDraw, shot: Shot, dimension: int, box: Box) -> None:
        """A continuous dimension: a bar from zero to the mean, and a tick at the sample."""
        left, top, right, bottom = box
        low, high = self._ranges[dimension]
        size = 12 if bottom - top >= 13 else 9
        track: Box = (left + 30, top + 2, right - 52, bottom - 1)
        inset = min(3.0, (track[3] - track[1]) / 4)
        draw.rounded_rectangle(track, 3, fill=TRACK)
        write(draw, (left, (top + bottom) / 2), f"a{dimension}", size, FAINT, "lm")

        def place(value: float) -> float:
            return track[0] + (track[2] - track[0]) * (min(max(value, low), high) - low) / (high - low)

        zero = place(0.0)
        if shot.means is not None:
            mean = place(float(shot.means[dimension]))
            draw.rectangle((min(zero, mean), track[1] + inset, max(zero, mean), track[3] - inset), fill=ACCENT)
        draw.line((zero, track[1], zero, track[3]), fill=FAINT, width=1)
        if shot.action is not None:
            drawn = float(continuous_parts(self._scene.interface.actions, shot.action)[dimension])
            x = place(drawn)
            draw.rectangle((x - 1.5, track[1] - 2, x + 1.5, track[3] + 2), fill=CHOSEN)
            write(draw, (right, (top + bottom) / 2), number(drawn), size, TEXT, "rm")


def _score(score: float) -> str:
    return f"{score:,.0f}" if score == round(score) else number(score)


def _width(text: str, size: int) -> float:
    from htsrl.video.canvas import font

    return float(font(size).getlength(text))


def _ranges(scene: Scene) -> list[tuple[float, float]]:
    """Of continuous dimensions: their bounds, or what they reach."""
    layout = scene.interface.actions
    if not layout.num_continuous:
        return []
    reached = np.array(list(_reached(scene))).reshape(-1, layout.num_continuous)
    ranges = []
    for i, (low, high) in enumerate(zip(layout.low.tolist(), layout.high.tolist(), strict=True)):
        most = float(np.abs(reached[:, i][np.isfinite(reached[:, i])]).max(initial=1e-3))
        is_bounded = np.isfinite(low) and np.isfinite(high) and 0 < high - low < 1e6
        ranges.append((low, high) if is_bounded else (-most, most))
    return ranges


def _reached(scene: Scene) -> Iterator[NDArray[Any]]:
    for shot in scene.shots:
        if shot.action is not None:
            yield continuous_parts(scene.interface.actions, shot.action)
        if shot.means is not None:
            yield shot.means
