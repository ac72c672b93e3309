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
from htsrl.statistics.intervals import Interval, mean_interval, p_value, paired_interval, shown_together
from htsrl.statistics.stratified import interquartile_difference
from htsrl_bench.learned import Learned
from htsrl_bench.record import Table

BASELINE = "sync"
DEFAULT = "hts"
"""With which other corrections are compared, too."""
THRESHOLDS = tuple(np.linspace(0.0, 1.5, 31).tolist())
RECORDED_POINTS = 30
"""Of a curve, in a record of hundreds of them."""
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

    @property
    def has_learned(self) -> bool:
        """Whether the baseline ends above where it began by more than seeds differ; else scores are noise over noise.

        Of a single seed nobody knows how seeds differ.
        """
        gained = mean_interval([value - self.first for value in self.final[BASELINE].values()])
        return self.scale > 0 if gained is None else gained.low > 0

    def normalised(self, way: str) -> list[float]:
        return [(value - self.first) / self.scale for value in self.final[way].values()]

    def less_baseline(self, quantity: Quantity, way: str) -> Interval | None:
        return paired_interval(quantity[way], quantity[BASELINE])


@dataclass(frozen=True)
class Difference:
    """One way less another, over all tasks on which the baseline learned something."""

    iqm: Interval | None
    """Of the interquartile means, over the seeds that runs of both ways have in common; None where those are few."""
    lower: Sequence[str]
    """Tasks that end lower, and below higher: shown together, by Holm's correction for as many tasks as there are."""
    higher: Sequence[str]


@dataclass(frozen=True)
class Aggregate:
    """One way over all tasks on which the baseline learned something."""

    way: str
    iqm: float
    improvement: float
    """How likely a run of this way ends higher than one of the baseline, on a task drawn at random."""
    profile: Sequence[float]
    """The share of runs with a normalised score above each threshold."""
    less: Mapping[str, Difference]
    """This way less the baseline, and less the default."""


def learnable(tasks: Sequence[TaskVerdict]) -> list[TaskVerdict]:
    return [task for task in tasks if task.has_learned]


def aggregate(tasks: Sequence[TaskVerdict], way: str) -> Aggregate:
    tasks = learnable(tasks)
    by_task = [task.normalised(way) for task in tasks]
    every = np.concatenate(by_task)[None]
    against = [
        probability_of_improvement(np.array([ours]).T, np.array([task.normalised(BASELINE)]).T)
        for ours, task in zip(by_task, tasks, strict=True)
    ]
    others = [other for other in (BASELINE, DEFAULT) if other in tasks[0].final and way not in (other, BASELINE)]
    return Aggregate(
        way=way,
        iqm=interquartile_mean(every),
        improvement=float(np.mean(against)),
        profile=performance_profile(every, THRESHOLDS),
        less={other: difference(tasks, way, other) for other in others},
    )


def difference(tasks: Sequence[TaskVerdict], way: str, other: str) -> Difference:
    """Of tasks that have been learned, each in both ways with the same seeds."""
    by_task = {
        task.name: [task.final[way][seed] - task.final[other][seed] for seed in task.final[way]] for task in tasks
    }
    p_values = {name: p for name, found in by_task.items() if (p := p_value(found)) is not None}
    shown = shown_together(p_values)
    return Difference(
        iqm=interquartile_difference(
            [task.normalised(way) for task in tasks], [task.normalised(other) for task in tasks]
        ),
        lower=[name for name in shown if sum(by_task[name]) < 0],
        higher=[name for name in shown if sum(by_task[name]) > 0],
    )


def run_document(task: str, run: Learned) -> dict[str, Any]:
    """A run in a record, which has hundreds: the record's command and configurations say how to repeat it."""
    document = run.document(max_points=RECORDED_POINTS)
    return {"task": task, **{name: value for name, value in document.items() if name != "command"}}


def summary(tasks: Sequence[TaskVerdict], ways: Sequence[str]) -> dict[str, Any]:
    return {
        "tasks": [asdict(task) for task in tasks],
        "not_learned": [task.name for task in tasks if not task.has_learned],
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
        "(Student's t), `*` where it leaves out 0, each task by itself. The end is the last tenth of training, 100 "
        "episodes at a time."
    )
    return [*_over_all(tasks, ways), Table(headings, rows, [note, *notes])]


def _over_all(tasks: Sequence[TaskVerdict], ways: Sequence[str]) -> list[Table]:
    if not learnable(tasks):
        return []
    found = [aggregate(tasks, way) for way in ways]
    missing = [task.name for task in tasks if not task.has_learned]
    left_out = (
        f" Left out, for {BASELINE} learned nothing there that its seeds show: {', '.join(missing)}." if missing else ""
    )
    note = (
        f"Over {len(learnable(tasks))} tasks. Scores are normalised: 0 is what the first episodes return, 1 what "
        f"{BASELINE} has in the end. IQM: the mean of the middle half of all runs; improvement: how likely a run ends "
        f"above one of {BASELINE}.{left_out}"
    )
    means = Table(
        ["way", "IQM", "improvement"], [[of.way, f"{of.iqm:.3f}", f"{of.improvement:.2f}"] for of in found], [note]
    )
    rows = [
        [
            f"{of.way} less {other}",
            iqm_words(less.iqm),
            ", ".join(less.lower) or "none",
            ", ".join(less.higher) or "none",
        ]
        for of in found
        for other, less in of.less.items()
    ]
    if not rows:
        return [means]
    note = (
        "The difference of IQMs with its 95 % interval (Student's t over the paired seeds of each task), and the tasks "
        "that end lower and higher by paired seeds, after Holm's correction for the number of tasks."
    )
    return [Table(["over all tasks", "IQM", "tasks that end lower", "higher"], rows, [note]), means]


def iqm_words(interval: Interval | None) -> str:
    if interval is None:
        return "too few seeds for an interval"
    return f"{interval.mean:+.3f} ({interval.low:+.3f} to {interval.high:+.3f})"


def _shown(difference: Interval | None) -> str:
    if difference is None:
        return "one seed"
    star = "" if difference.has_zero else " *"
    return f"{difference.mean:+.4g} ({difference.low:+.4g} to {difference.high:+.4g}){star}"
