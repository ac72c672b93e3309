"""The charts of a report as files for papers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from htsrl.errors import ConfigError
from htsrl.plain_files import printable
from htsrl.reports.charts import band_of, by_minutes, by_steps
from htsrl.reports.summary import Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#1f5fa8", "#c2600a", "#237a4d", "#7d45b0", "#b32f40", "#6f6000", "#217f95", "#444c55")
DOTS_PER_INCH = 200


def write_pictures(summary: Summary, folder: Path, kind: str) -> list[Path]:
    """A file for each task's curves and one for the profiles; returns them."""
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, figure in _figures(summary):
            path = folder / f"{name}.{kind}"
            # No date and no random ids: the same runs, the same file.
            metadata: Any = {"Date": None} if kind == "svg" else {"Software": None}
            figure.savefig(path, format=kind, dpi=DOTS_PER_INCH, metadata=metadata)
            written.append(path)
    except OSError as error:
        raise ConfigError(f"cannot write pictures to {folder}: {error.strerror}; name another folder") from error
    return written


def _figures(summary: Summary) -> Iterator[tuple[str, Figure]]:
    for i, task in enumerate(summary.tasks):
        figure, panels = _empty(2)
        for axes, axis, label in zip(panels, (by_steps, by_minutes), ("environment steps", "minutes"), strict=True):
            for cell in summary.cells_of(task):
                colour = _colour(summary.variants.index(cell.variant))
                for run in cell.runs:
                    axes.plot(*axis(run.curve), color=colour, linewidth=0.6, alpha=0.35)
                if (band := band_of(cell.runs, axis)) is not None:
                    axes.plot(band.places, band.mean, color=colour, linewidth=1.8, label=printable(cell.variant))
                    axes.fill_between(band.places, band.low, band.high, color=colour, alpha=0.15, linewidth=0)
            axes.set_xlabel(label)
        panels[0].set_ylabel("mean return")
        panels[0].set_title(printable(task)[:100], loc="left", fontsize=10, parse_math=False)
        _finish(panels[0])
        yield f"curves-{i + 1}-{re.sub(r'[^A-Za-z0-9._-]+', '-', task)[:60]}", figure
    figure, (axes,) = _empty(1)
    for i, aggregate in enumerate(summary.aggregates):
        axes.plot(summary.thresholds, aggregate.profile, color=_colour(i), label=printable(aggregate.variant))
        axes.fill_between(
            summary.thresholds, aggregate.profile_low, aggregate.profile_high, color=_colour(i), alpha=0.15, linewidth=0
        )
    axes.set_xlabel("normalised score" if summary.is_normalised else "final return")
    axes.set_ylabel("share of runs above")
    _finish(axes)
    yield "performance-profiles", figure


def _empty(num_panels: int) -> tuple[Figure, list[Axes]]:
    # Imported here: it takes a second. Never pyplot: it has global state.
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    matplotlib.rcParams["svg.hashsalt"] = "htsrl"
    figure = Figure(figsize=(4.2 * num_panels, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    panels = [figure.add_subplot(1, num_panels, 1 + i) for i in range(num_panels)]
    for axes in panels:
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    if num_panels == 2:
        panels[0].xaxis.set_major_formatter(EngFormatter(sep=""))
    return figure, panels


def _finish(axes: Axes) -> None:
    """Labels are text of folders, not mathematics."""
    legend = axes.legend(frameon=False, fontsize=8)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _colour(i: int) -> str:
    return COLOURS[i % len(COLOURS)]
