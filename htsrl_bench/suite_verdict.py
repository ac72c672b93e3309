"""What a suite of tasks says about the ways in which it was learned: task by task, and over all of them.

A score is comparable between tasks once it is normalised: 0 is what the first episodes of the baseline return, 1 what
the baseline has in the end. Aggregates are rliable's (https://arxiv.org/abs/2108.13264).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from htsrl.statistics.aggregates import interquartile_mean, performance_profile, probability_of_improvement
from htsrl.statistics.curve import final_return
from htsrl.statistics.intervals import Interval, paired_interval
from htsrl.statistics.stratified import interquartile_interval
from htsrl_bench.learned import Learned
from htsrl_bench.record import Table

BASELINE = "sync"
THRESHOLDS = tuple(np.linspace(0.0, 1.5, 31).tolist())
Quantity = Mapping[str, Mapping[int, float]]
"""By way and seed."""


@dataclass(frozen=True)
class TaskVerdict:
    """One task."""

    name: str
    steps: int
    final: Quantity
    """Mean return of the last tenth of training."""
    over_run: Quantity
    first: float
    """What the first episodes of the baseline return."""

    @classmethod
    def of(cls, name: str, learned: Sequence[Learned]) -> TaskVerdict:
        ways = list(dict.fromkeys(run.way for run in learned))
        return cls(
            name=name,
            steps=learned[0].steps,
            final={way: {run.seed: final_return(run.curve) for run in learned if run.way == way} for way in ways},
            over_run={way: {run.seed: run.mean_over_run for run in learned if run.way == way} for way in ways},
            first=float(np.mean([run.curve[0][1] for run in learned if run.way == BASELINE])),
        )

    @property
    def scale(self) -> float:
        """What the baseline has learned, in returns."""
        return float(np.mean(list(self.final[BASELINE].values()))) - self.first

    def normalised(self, way: str) -> list[float]:
        return [(value - self.first) / self.scale for value in self.final[way].values()]

    def less_baseline(self, quantity: Quantity, way: str) -> Interval | None:
        return paired_interval(quantity[way], quantity[BASELINE])


@dataclass(frozen=True)
class Aggregate:
    """One way over all tasks on which the baseline learned something."""

    way: str
    iqm: float
    iqm_low: float | None
    """None, here and below, where seeds are too few to know."""
    iqm_high: float | None
    improvement: float
    """How likely a run of this way ends higher than one of the baseline, on a task drawn at random."""
    profile: Sequence[float]
    """The share of runs with a normalised score above each threshold."""
    worse: Sequence[str]
    """Tasks that end lower than the baseline, by an interval that leaves out 0."""
    better: Sequence[str]


def learnable(tasks: Sequence[TaskVerdict]) -> list[TaskVerdict]:
    """Those on which the baseline ends above where it began."""
    return [task for task in tasks if task.scale > 0]


def aggregate(tasks: Sequence[TaskVerdict], way: str) -> Aggregate:
    tasks = learnable(tasks)
    by_task = [task.normalised(way) for task in tasks]
    interval = interquartile_interval(by_task)
    every = np.concatenate(by_task)[None]
    against = [
        probability_of_improvement(np.array([ours]).T, np.array([task.normalised(BASELINE)]).T)
        for ours, task in zip(by_task, tasks, strict=True)
    ]
    intervals = {task.name: task.less_baseline(task.final, way) for task in tasks}
    known = {name: interval for name, interval in intervals.items() if interval and not interval.has_zero}
    return Aggregate(
        way=way,
        iqm=interquartile_mean(every),
        iqm_low=interval.low if interval else None,
        iqm_high=interval.high if interval else None,
        improvement=float(np.mean(against)),
        profile=performance_profile(every, THRESHOLDS),
        worse=[name for name, interval in known.items() if interval.high < 0],
        better=[name for name, interval in known.items() if interval.low > 0],
    )


def summary(tasks: Sequence[TaskVerdict], ways: Sequence[str]) -> dict[str, Any]:
    return {
        "tasks": [asdict(task) for task in tasks],
        "not_learned": [task.name for task in tasks if task not in learnable(tasks)],
        "aggregates": [asdict(aggregate(tasks, way)) for way in ways] if learnable(tasks) else [],
    }


def tables(tasks: Sequence[TaskVerdict], ways: Sequence[str], notes: Sequence[str] = ()) -> list[Table]:
    others = [way for way in ways if way != BASELINE]
    num_seeds = len(tasks[0].final[BASELINE])
    rows = [
        [
            task.name,
            f"{task.steps:,}",
            f"{np.mean(list(task.final[BASELINE].values())):.4g}",
            *(_shown(task.less_baseline(task.final, way)) for way in others),
            *(_shown(task.less_baseline(task.over_run, way)) for way in others),
        ]
        for task in tasks
    ]
    headings = ["task", "steps", f"{BASELINE}, end"]
    headings += [f"{way} less {BASELINE}, end" for way in others]
    headings += [f"{way} less {BASELINE}, over the run" for way in others]
    note = (
        f"{num_seeds} seed{'s' * (num_seeds > 1)}; differences are means over paired seeds with their 95 % interval "
        "(Student's t), `*` where it leaves out 0. The end is the last tenth of training, 100 episodes at a time."
    )
    return [*_over_all(tasks, ways), Table(headings, rows, [note, *notes])]


def _over_all(tasks: Sequence[TaskVerdict], ways: Sequence[str]) -> list[Table]:
    if not learnable(tasks):
        return []
    rows = []
    for way in ways:
        of = aggregate(tasks, way)
        rows.append(
            [
                way,
                f"{of.iqm:.3f} ({range_words(of.iqm_low, of.iqm_high)})",
                f"{of.improvement:.2f}",
                ", ".join(of.worse) or "none",
                ", ".join(of.better) or "none",
            ]
        )
    missing = [task.name for task in tasks if task not in learnable(tasks)]
    left_out = f" Left out, for {BASELINE} learned nothing there: {', '.join(missing)}." if missing else ""
    note = (
        f"Over {len(learnable(tasks))} tasks. Scores are normalised: 0 is what the first episodes return, 1 what "
        f"{BASELINE} has in the end. IQM: the mean of the middle half of all runs, with its 95 % interval (Student's t "
        f"over the seeds of each task); improvement: how likely a run ends above one of {BASELINE}.{left_out}"
    )
    return [Table(["way", "IQM", "improvement", "tasks that end lower", "higher"], rows, [note])]


def range_words(low: float | None, high: float | None) -> str:
    return "too few seeds for an interval" if low is None or high is None else f"{low:.3f} to {high:.3f}"


def _shown(difference: Interval | None) -> str:
    if difference is None:
        return "one seed"
    star = "" if difference.has_zero else " *"
    return f"{difference.mean:+.4g} ({difference.low:+.4g} to {difference.high:+.4g}){star}"
