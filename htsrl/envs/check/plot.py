"""The distribution of step times, and what the barrier costs, as a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from htsrl.envs.check.advice import NUM_ENVS, barrier_losses
from htsrl.envs.check.timing import Spread, StepTimes
from htsrl.errors import ConfigError

COLOUR = "#1f5fa8"
QUIET_COLOUR = "#666666"


def check_picture(picture: Path) -> None:
    """Refuse a place that a picture could not be written to, before anything is measured."""
    if picture.suffix.lower() != ".png":
        raise ConfigError(f"--plot {picture} must end in .png")
    if not picture.parent.is_dir():
        raise ConfigError(f"--plot {picture}: there is no folder {picture.parent}; make it first")


def draw_times(env: str, times: StepTimes, picture: Path) -> None:
    # Imported here: it takes a second, and few ask for it. Never pyplot: it has global state.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    milliseconds, spread = times.step_seconds * 1e3, Spread.of(times.step_seconds)
    lowest, highest = max(milliseconds.min(), 1e-6), milliseconds.max()
    left.hist(milliseconds, bins=np.geomspace(lowest, max(highest, lowest * 1.01), 41), color=COLOUR)
    left.set_xscale("log")
    for name, value in (("p50", spread.p50), ("p99", spread.p99)):
        left.axvline(value * 1e3, color=QUIET_COLOUR, linewidth=1, linestyle="--")
        left.annotate(name, (value * 1e3, 0.98), xycoords=("data", "axes fraction"), rotation=90, va="top", ha="left")
    left.set_title(f"{env}: {spread.count:,} steps, cv {spread.cv:.2f}", loc="left", fontsize=11)
    left.set_xlabel("milliseconds a step")
    left.set_ylabel("steps")
    losses = barrier_losses(times)
    right.bar([str(loss.sync_interval) for loss in losses], [100 * loss.share for loss in losses], color=COLOUR)
    right.set_title(f"time that {NUM_ENVS} environments lose at the barrier", loc="left", fontsize=11)
    right.set_xlabel("sync interval")
    right.set_ylabel("per cent")
    right.set_ylim(0, 100)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, format="png")
