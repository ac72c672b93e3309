"""Charts as inline SVG: coloured by the page's style, so that one drawing serves light, dark and paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

NUM_COLOURS = 8
WIDTH, HEIGHT = 540, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 14, 44
Points = Sequence[tuple[float, float]]


@dataclass
class Chart:
    """Axes from the smallest to the largest of what is drawn; y grows upwards."""

    x_label: str
    y_label: str
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    title: str
    x_ticks: Sequence[tuple[float, str]] | None = None
    log_x: bool = False
    _parts: list[str] = field(default_factory=list)

    def line(self, points: Points, colour: int, thin: bool = False) -> None:
        kind = "thin" if thin else "line"
        path = " ".join(f"{self._x(x):.1f},{self._y(y):.1f}" for x, y in points)
        if len(points) == 1:
            self.dot(points[0], colour, "")
        self._parts.append(f'<polyline class="{kind} s{colour % NUM_COLOURS}" points="{path}"/>')

    def band(self, low: Points, high: Points, colour: int) -> None:
        path = " ".join(f"{self._x(x):.1f},{self._y(y):.1f}" for x, y in [*low, *reversed(high)])
        self._parts.append(f'<polygon class="band f{colour % NUM_COLOURS}" points="{path}"/>')

    def dot(self, point: tuple[float, float], colour: int, hint: str, hollow: bool = False) -> None:
        kind = f"hollow s{colour % NUM_COLOURS}" if hollow else f"f{colour % NUM_COLOURS}"
        title = f"<title>{escape(hint)}</title>" if hint else ""
        place = f'cx="{self._x(point[0]):.1f}" cy="{self._y(point[1]):.1f}"'
        self._parts.append(f'<circle class="{kind}" {place} r="4">{title}</circle>')

    def level(self, y: float, label: str) -> None:
        """A dashed line across."""
        at = self._y(y)
        self._parts.append(
            f'<line class="level" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
            f'<text class="tick" x="{WIDTH - RIGHT}" y="{at - 4:.1f}" text-anchor="end">{escape(label)}</text>'
        )

    def svg(self) -> str:
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(self.title)}">'
            f"{self._axes()}{''.join(self._parts)}</svg>"
        )

    def _axes(self) -> str:
        parts = []
        for y in ticks(*self.y_range):
            at = self._y(y)
            parts.append(
                f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
                f'<text class="tick" x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{short_number(y)}</text>'
            )
        for x, label in self.x_ticks or self._number_ticks():
            at = self._x(x)
            parts.append(
                f'<text class="tick" x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{escape(label)}'
                "</text>"
            )
        middle_x, middle_y = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
        parts.append(
            f'<text class="axis" x="{middle_x}" y="{HEIGHT - 6}" text-anchor="middle">{escape(self.x_label)}</text>'
            f'<text class="axis" transform="translate(14 {middle_y}) rotate(-90)" text-anchor="middle">'
            f"{escape(self.y_label)}</text>"
        )
        return "".join(parts)

    def _number_ticks(self) -> list[tuple[float, str]]:
        if not self.log_x:
            return [(x, short_number(x)) for x in ticks(*self.x_range)]
        low, high = (math.log10(x) for x in self.x_range)
        powers = [10.0**power for power in range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)]
        return [(x, short_number(x)) for x in powers or self.x_range]

    def _x(self, x: float) -> float:
        scale: Callable[[float], float] = math.log10 if self.log_x else float
        return LEFT + (WIDTH - LEFT - RIGHT) * _share(scale(x), *map(scale, self.x_range))

    def _y(self, y: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * _share(y, *self.y_range)


def bars(values: Sequence[tuple[str, float, str]], title: str) -> str:
    """Horizontal bars: a name, a share of the whole width, and what is written behind it."""
    row = 26
    height = row * len(values) + 6
    parts = []
    for i, (name, share, text) in enumerate(values):
        y, width = 4 + i * row, max((WIDTH - 300) * min(max(share, 0.0), 1.0), 1)
        parts.append(
            f'<text class="tick" x="160" y="{y + 15}" text-anchor="end">{escape(name[:24])}</text>'
            f'<rect class="f0" x="170" y="{y + 3}" width="{width:.1f}" height="16" rx="2"/>'
            f'<text class="tick" x="{178 + width:.1f}" y="{y + 15}">{escape(text)}</text>'
        )
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'


def padded(values: Sequence[float], share: float = 0.05) -> tuple[float, float]:
    """The range of the values, and a little more, never empty."""
    low, high = min(values), max(values)
    margin = (high - low) * share or max(abs(high) * share, 1e-9)
    return low - margin, high + margin


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers within the range."""
    raw = (high - low) / most
    if not raw > 0 or not math.isfinite(raw):
        return [low]
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def short_number(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


def _share(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.5
