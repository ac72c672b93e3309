"""Pictures in one style. Never pyplot, which has global state; matplotlib is imported when there is one to draw."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PART_COLOURS = {"simulator": "#4a8f5c", "inference": "#1f5fa8", "learning": "#d9730d"}
SCHEDULE_COLOURS = {"hts": "#1f5fa8", "sync": "#d9730d", "lockstep": "#8a8a8a", "async": "#4a8f5c"}
WAY_COLOURS = {
    **SCHEDULE_COLOURS,
    "hts-vtrace": "#3f7fc4",
    "hts-importance": "#6b9fd6",
    "hts-bfloat16": "#1b7f5c",
    "sync-bfloat16": "#c9a227",
    "hts-recentered": "#3a9fb5",
    "hts-decoupled": "#8a4fbf",
    "hts-delayed-update": "#c23b4b",
    "hts-uncorrected": "#a3c3e6",
    "async-importance": "#79b38a",
    "async-uncorrected": "#a9d1b5",
}
"""Of a schedule, or paler with another correction of its lag."""
SPARE_COLOURS = ("#7a6a00", "#e377c2", "#444444", "#8c564b", "#17becf")
"""Of ways that have none, such as lag-K."""
QUIET_COLOUR = "#666666"
DOTS_PER_INCH = 110
NUM_COLOURS = 64
"""Lines, their crossings and smooth edges need no more; a file takes a third of what full colour takes."""


def empty_figure(columns: int = 1, rows: int = 1, width: float = 8.0, height: float = 4.5) -> tuple[Figure, list[Axes]]:
    """A figure with so many plots, each without clutter."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    all_axes = [figure.add_subplot(rows, columns, number + 1) for number in range(rows * columns)]
    for axes in all_axes:
        axes.grid(color="#dddddd", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, all_axes


def colours_of(ways: Sequence[str]) -> dict[str, str]:
    spare = cycle(SPARE_COLOURS)
    return {way: WAY_COLOURS.get(way) or next(spare) for way in ways}


def finish(axes: Axes, title: str, horizontal: str, vertical: str) -> None:
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlabel(horizontal)
    axes.set_ylabel(vertical)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=9)


def save(figure: Figure, picture: Path) -> None:
    """As a PNG that is small enough to be kept with the code."""
    from PIL import Image  # by which matplotlib writes pictures itself

    drawn = BytesIO()
    figure.savefig(drawn, format="png")
    with Image.open(drawn) as image:
        image.convert("RGB").quantize(NUM_COLOURS).save(picture, format="png", optimize=True)
