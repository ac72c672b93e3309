"""Pictures of limits and throughput: a row for every work."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from htsrl_bench.plots import PART_COLOURS, QUIET_COLOUR, WAY_COLOURS, empty_figure, finish, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_limits(summary: Mapping[str, Any], picture: Path) -> None:
    """The shares of a step that its parts take, and the steps per second if there were nothing else."""
    works = list(summary["works"])[::-1]
    figure, (axes,) = empty_figure(height=1.2 + 0.45 * len(works))
    done = [0.0] * len(works)
    for part, colour in PART_COLOURS.items():
        totals = [sum(summary["works"][work][name] for name in PART_COLOURS) for work in works]
        shares = [100 * summary["works"][work][part] / total for work, total in zip(works, totals, strict=True)]
        axes.barh(works, shares, left=done, color=colour, label=part, height=0.62)
        done = [before + share for before, share in zip(done, shares, strict=True)]
    for place, work in enumerate(works):
        axes.text(101, place, f"{summary['works'][work]['roofline']['median']:,.0f} steps/s", va="center", fontsize=9)
    axes.set_xlim(0, 122)
    axes.set_xticks(range(0, 101, 20))
    axes.grid(visible=False, axis="y")
    finish(axes, "What a step consists of, and the most steps per second", "% of the CPU time of a step", "")
    _legend_below(figure, axes)
    save(figure, picture)


def draw_throughput(summary: Mapping[str, Any], picture: Path) -> None:
    """How much of the roofline every schedule reaches on every work, and the steps per second behind it."""
    works = list(summary)
    schedules = list(summary[works[0]]["schedules"])
    figure, (axes,) = empty_figure(height=1.4 + 0.26 * len(works) * (len(schedules) + 0.6))
    for number, schedule in enumerate(schedules):
        places = [-(place * (len(schedules) + 0.6) + number) for place in range(len(works))]
        own = [summary[work]["schedules"][schedule] for work in works]
        shares = [100 * of["share_of_roofline"]["median"] for of in own]
        axes.barh(places, shares, height=0.85, color=WAY_COLOURS[schedule], label=schedule)
        for place, share, of in zip(places, shares, own, strict=True):
            axes.text(share + 1, place, f"{of['steps_per_second']['median']:,.0f} steps/s", va="center", fontsize=8)
    axes.axvline(100, color=QUIET_COLOUR, linewidth=1, linestyle="--")
    middles = [-(place * (len(schedules) + 0.6) + (len(schedules) - 1) / 2) for place in range(len(works))]
    axes.set_yticks(middles, works)
    axes.set_xlim(0, 118)
    axes.grid(visible=False, axis="y")
    finish(axes, "How much of the roofline is reached", "% of the roofline", "")
    _legend_below(figure, axes)
    save(figure, picture)


def _legend_below(figure: Figure, axes: Axes) -> None:
    legend = axes.get_legend()
    if legend is not None:
        legend.remove()
    figure.legend(frameon=False, fontsize=9, ncols=4, loc="outside lower center")
