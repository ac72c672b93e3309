"""Learning curves in one picture: several seeds under both schedules, or runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from htsrl.bench.learning import Learned
from htsrl.bench.runs import Recorded
from htsrl.bench.tasks import SCHEDULES, Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"hts": "#1f5fa8", "sync": "#d9730d"}
QUIET_COLOUR = "#666666"


def draw_curves(task: Task, learned: Sequence[Learned], picture: Path) -> None:
    """A thin line per seed and a thick one for their mean, for each schedule."""
    figure, axes = _empty_picture()
    axes.axhline(task.goal, color=QUIET_COLOUR, linewidth=1, linestyle="--", label=f"goal {task.goal:g}")
    for schedule in SCHEDULES:
        _draw_schedule(axes, [run for run in learned if run.schedule == schedule], schedule)
    num_seeds = len({run.seed for run in learned})
    _finish(axes, f"{task.name}: mean of {num_seeds} seeds, and each of them")
    figure.savefig(picture, format="png")


def draw_runs(name: str, recorded: Sequence[Recorded], picture: Path) -> None:
    """A line per run, in one colour where they differ in their seeds alone."""
    figure_of_runs(name, recorded).savefig(picture, format="png")


def figure_of_runs(name: str, recorded: Sequence[Recorded]) -> Figure:
    figure, axes = _empty_picture()
    kinds = list(dict.fromkeys(run.kind for run in recorded))
    for kind in kinds:
        runs = [run for run in recorded if run.kind == kind]
        label, width = (runs[0].name, 1.5) if len(runs) == 1 else (f"{kind}, {len(runs)} seeds", 1.0)
        for run in runs:
            axes.plot(
                *zip(*run.curve, strict=True),
                label=label if run is runs[0] else None,
                color=f"C{kinds.index(kind)}",
                linewidth=width,
                marker="o" if len(run.curve) == 1 else None,
            )
    _finish(axes, name)
    return figure


def _empty_picture() -> tuple[Figure, Axes]:
    # Imported here: it takes a second, and only the end of a benchmark needs it. Never pyplot: it has global state.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    figure = Figure(figsize=(8, 4.5), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_xlabel("environment steps")
    axes.set_ylabel("mean return of the last 100 episodes")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _finish(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=12)
    axes.set_xlim(left=0)  # last: a limit set before there are lines would keep the axis from 0 to 1
    axes.legend(frameon=False)


def _draw_schedule(axes: Axes, runs: Sequence[Learned], schedule: str) -> None:
    colour = COLOURS[schedule]
    curves = [np.asarray(run.curve, dtype=np.float64).T for run in runs]
    for steps, returns in curves:
        axes.plot(steps, returns, color=colour, linewidth=0.8, alpha=0.4)
    # Runs have their first episodes at different steps; the mean starts where all of them have one.
    start, end = max(steps[0] for steps, _ in curves), min(steps[-1] for steps, _ in curves)
    common = [step for step in curves[0][0] if start <= step <= end]
    mean = np.mean([np.interp(common, steps, returns) for steps, returns in curves], axis=0)
    axes.plot(common, mean, color=colour, linewidth=2.2, label=schedule)
