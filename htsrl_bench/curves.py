"""Learning curves in one picture: several seeds in several ways, or runs side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from htsrl.statistics.curve import Curve
from htsrl.statistics.intervals import Interval
from htsrl_bench.lag_learning import LagRow, way_of
from htsrl_bench.learned import Learned
from htsrl_bench.plots import DOTS_PER_INCH, QUIET_COLOUR, save
from htsrl_bench.runs import Recorded
from htsrl_bench.verdict import ways_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#1f5fa8", "#d9730d", "#2a8f5b", "#8a4fbf", "#c23b4b", "#7a6a00", "#3a9fb5", "#444444")
Floats = NDArray[Any]


def draw_curves(name: str, goal: float, learned: Sequence[Learned], picture: Path) -> None:
    """Against steps and against minutes: a thin line per seed and a thick one for their mean, for each way."""
    figure, axes = _empty_picture(num_panels=2)
    for panel, axis in zip(axes, (_steps, _minutes), strict=True):
        panel.axhline(goal, color=QUIET_COLOUR, linewidth=1, linestyle="--", label=f"goal {goal:g}")
        for way, colour in zip(ways_of(learned), COLOURS, strict=False):
            _draw_way(panel, [run for run in learned if run.way == way], axis, way, colour)
    num_seeds = len({run.seed for run in learned})
    _finish(axes[0], f"{name}: mean of {num_seeds} seeds, and each of them")
    axes[1].set_xlim(left=0)
    axes[1].set_xlabel("minutes")
    save(figure, picture)


def draw_lags(name: str, rows: Sequence[LagRow], learned: Sequence[Learned], picture: Path) -> None:
    """The curves of every lag against steps, and the mean over the run against the lag, with its interval."""
    figure, (curves, means) = _empty_picture(num_panels=2)
    for way, colour in zip(ways_of(learned), COLOURS, strict=False):
        _draw_way(curves, [run for run in learned if run.way == way], _steps, way, colour)
    for row, colour in zip(rows, COLOURS, strict=False):
        seeds = [run.mean_over_run for run in learned if run.way == way_of(row.lag)]
        means.plot([row.lag] * len(seeds), seeds, "o", color=colour, alpha=0.4, markersize=4)
        if isinstance(row.over_run, Interval):
            half = row.over_run.high - row.over_run.mean
            means.errorbar(row.lag, row.over_run.mean, half, marker="s", capsize=4, color=colour)
    _finish(curves, f"{name}: mean of {len({run.seed for run in learned})} seeds, and each of them")
    means.set_xticks([row.lag for row in rows])
    means.set_xlabel("lag, in updates")
    means.set_ylabel("mean return over the run")
    save(figure, picture)


def draw_runs(name: str, recorded: Sequence[Recorded], picture: Path) -> None:
    """A line per run, in one colour where they differ in their seeds alone."""
    save(figure_of_runs(name, recorded), picture)


def figure_of_runs(name: str, recorded: Sequence[Recorded]) -> Figure:
    figure, (axes,) = _empty_picture()
    kinds = list(dict.fromkeys(run.kind for run in recorded))
    for kind in kinds:
        runs = [run for run in recorded if run.kind == kind]
        label, width = (runs[0].name, 1.5) if len(runs) == 1 else (f"{kind}, {len(runs)} seeds", 1.0)
        for run in runs:
            axes.plot(
                *_steps(run.curve),
                label=label if run is runs[0] else None,
                color=f"C{kinds.index(kind)}",
                linewidth=width,
                marker="o" if len(run.curve) == 1 else None,
            )
    _finish(axes, name)
    return figure


def _empty_picture(num_panels: int = 1) -> tuple[Figure, list[Axes]]:
    # Imported here: it takes a second, and only the end of a benchmark needs it. Never pyplot: it has global state.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    figure = Figure(figsize=(4 + 4 * num_panels, 4.5), dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    panels = [figure.add_subplot(1, num_panels, 1 + i) for i in range(num_panels)]
    panels[0].set_xlabel("environment steps")
    panels[0].set_ylabel("mean return of the last 100 episodes")
    panels[0].xaxis.set_major_formatter(EngFormatter(sep=""))
    for panel in panels:
        panel.grid(color="#dddddd", linewidth=0.8)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    return figure, panels


def _finish(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=12)
    axes.set_xlim(left=0)  # last: a limit set before there are lines would keep the axis from 0 to 1
    axes.legend(frameon=False)


def _steps(curve: Curve) -> Floats:
    """Where the curve's points are, and how high: `[2, points]`."""
    return np.asarray(curve, dtype=np.float64).T[[0, 1]]


def _minutes(curve: Curve) -> Floats:
    steps_returns_seconds = np.asarray(curve, dtype=np.float64).T
    return np.stack([steps_returns_seconds[2] / 60, steps_returns_seconds[1]])


def _draw_way(panel: Axes, runs: Sequence[Learned], axis: Callable[[Curve], Floats], way: str, colour: str) -> None:
    curves = [axis(run.curve) for run in runs]
    for places, returns in curves:
        panel.plot(places, returns, color=colour, linewidth=0.8, alpha=0.4)
    # Runs have their first episodes at different steps; the mean starts where all of them have one.
    start, end = max(places[0] for places, _ in curves), min(places[-1] for places, _ in curves)
    common = [place for place in curves[0][0] if start <= place <= end]
    mean = np.mean([np.interp(common, places, returns) for places, returns in curves], axis=0)
    panel.plot(common, mean, color=colour, linewidth=2.2, label=way)
