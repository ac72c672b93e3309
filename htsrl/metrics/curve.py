"""The learning curve as a picture."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from htsrl.metrics.sinks import read_json_lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE_CHARACTERS = 75
LINE_COLOUR = "#1f5fa8"
QUIET_COLOUR = "#666666"


def draw_learning_curve(metrics_file: Path, picture: Path, title: str) -> None:
    """Draw the mean episode return against the environment steps, as a PNG."""
    # Imported here: it takes a second, and only the end of a run needs it. Never pyplot: it has global state.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(8, 4.5), dpi=150, layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12))
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    # A title is text, not mathematics: a $ in it must not fail the picture. Matplotlib's own wrapping forgets that.
    axes.set_title(fill(title, TITLE_CHARACTERS), loc="left", fontsize=12, parse_math=False)

    points = _returns_by_step(metrics_file)
    if points:
        _draw_curve(axes, points)
    else:
        _draw_absence(axes)
    _save_whole(figure, picture)


def _returns_by_step(metrics_file: Path) -> list[tuple[float, float]]:
    points = []
    for record in read_json_lines(metrics_file):
        step, mean_return = record.get("step"), record.get("rollout/ep_rew_mean")
        if step is not None and mean_return is not None:
            points.append((step, mean_return))
    return points


def _draw_curve(axes: Axes, points: list[tuple[float, float]]) -> None:
    from matplotlib.ticker import EngFormatter

    steps, returns = zip(*points, strict=True)
    axes.plot(steps, returns, color=LINE_COLOUR, linewidth=1.8)
    # A run with a single point would otherwise show an empty frame: a line needs two.
    axes.plot(steps[-1:], returns[-1:], color=LINE_COLOUR, marker="o", markersize=5)
    axes.annotate(
        f"{returns[-1]:.1f}", points[-1], xytext=(8, 0), textcoords="offset points", va="center", color=LINE_COLOUR
    )
    axes.set_xlim(left=0)
    axes.set_xlabel("environment steps")
    axes.set_ylabel("mean episode return")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_absence(axes: Axes) -> None:
    axes.set_axis_off()
    axes.text(
        0.5, 0.5, "no episode has finished", transform=axes.transAxes, ha="center", fontsize=14, color=QUIET_COLOUR
    )


def _save_whole(figure: Figure, picture: Path) -> None:
    """Write the picture so that nobody ever sees half of it."""
    temporary = picture.with_name(f".{picture.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            figure.savefig(file, format="png")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(picture)
    finally:
        temporary.unlink(missing_ok=True)
