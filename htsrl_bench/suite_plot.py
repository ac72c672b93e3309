"""One picture of a suite: where which way wins, and how the runs of each are spread."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from htsrl_bench.plots import QUIET_COLOUR, colours_of, empty_figure, finish, save
from htsrl_bench.suite_verdict import BASELINE, THRESHOLDS, TaskVerdict, aggregate, learnable


def draw_suite(name: str, tasks: Sequence[TaskVerdict], ways: Sequence[str], picture: Path) -> None:
    """Left, each way less the baseline, task by task, in parts of what that has learned; right, the profiles."""
    shown, others, colours = learnable(tasks), [way for way in ways if way != BASELINE], colours_of(ways)
    figure, (differences, profiles) = empty_figure(columns=2, width=12, height=1.5 + 0.35 * max(len(shown), 8))
    differences.axvline(0, color=QUIET_COLOUR, linewidth=1)
    for place, task in enumerate(reversed(shown)):
        for number, way in enumerate(others):
            if (interval := task.less_baseline(task.final, way)) is None:
                continue
            low, mean, high = (x / task.scale for x in (interval.low, interval.mean, interval.high))
            height = place + 0.15 * (number - (len(others) - 1) / 2)
            label = way if place == 0 else None
            bars = [[mean - low], [high - mean]]
            differences.errorbar(mean, height, xerr=bars, marker="o", capsize=3, color=colours[way], label=label)
    differences.set_yticks(range(len(shown)), [task.name for task in reversed(shown)])
    finish(differences, f"{name}: less {BASELINE} at the end, 95 % intervals", f"parts of what {BASELINE} learned", "")
    for way in ways if shown else ():
        profiles.plot(THRESHOLDS, aggregate(tasks, way).profile, color=colours[way], label=way)
    finish(profiles, "performance profiles", "normalised score", "share of runs above it")
    save(figure, picture)
