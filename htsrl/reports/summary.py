"""The numbers of a report: by task and variant over seeds, and over all tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from htsrl.errors import ConfigError
from htsrl.reports.gather import ReportedRun
from htsrl.reports.words import value_words
from htsrl.statistics.aggregates import interquartile_mean, performance_profile
from htsrl.statistics.curve import LAST_SHARE, final_at_budget, final_return, seconds_to
from htsrl.statistics.intervals import Interval, mean_interval
from htsrl.statistics.stratified import interquartile_interval, profile_band

NUM_THRESHOLDS = 61
MAX_LABEL = 80


@dataclass(frozen=True)
class Options:
    """What the reader may choose."""

    target: float | None = None
    """Return that time to a target is about. None: the lowest final mean of the variants, task by task."""
    budget_seconds: float | None = None
    """None: as long as the quickest run of the task took."""
    share: float = LAST_SHARE
    ranges: Mapping[str, tuple[float, float]] | None = None
    """Scores that count as 0 and 1, by task; of other tasks the lowest and highest there are."""


@dataclass(frozen=True)
class Cell:
    """One variant on one task: the paper's three metrics over seeds."""

    task: str
    variant: str
    runs: Sequence[ReportedRun]
    finals: Sequence[float]
    at_budget: Sequence[float | None]
    to_target: Sequence[float | None]
    budget_seconds: float
    target: float

    @property
    def final(self) -> Interval | None:
        return mean_interval(self.finals)

    @property
    def steps_per_second(self) -> float | None:
        known = [run.steps_per_second for run in self.runs if run.steps_per_second]
        return float(np.mean(known)) if known else None


@dataclass(frozen=True)
class Aggregate:
    """One variant over all tasks, as rliable defines it."""

    variant: str
    iqm: float
    iqm_interval: Interval | None
    """None where the runs are too few to know."""
    profile: Sequence[float]
    profile_low: Sequence[float]
    profile_high: Sequence[float]
    num_runs: int


@dataclass(frozen=True)
class Summary:
    """All numbers of a report."""

    tasks: Sequence[str]
    variants: Sequence[str]
    cells: Sequence[Cell]
    thresholds: Sequence[float]
    aggregates: Sequence[Aggregate]
    is_normalised: bool

    def cells_of(self, task: str) -> list[Cell]:
        return [cell for cell in self.cells if cell.task == task]


def summarise(runs: Sequence[ReportedRun], options: Options) -> Summary:
    labels = variant_labels(runs)
    tasks = list(dict.fromkeys(run.task for run in runs))
    variants = list(dict.fromkeys(labels[_key(run)] for run in runs))
    if unknown := (options.ranges or {}).keys() - set(tasks):
        raise ConfigError(f"no run is of the task {sorted(unknown)[0]!r}; there are {', '.join(tasks)}")
    cells = [cell for task in tasks for cell in _cells(task, runs, labels, options)]
    scores = _normalised(tasks, cells, options)
    thresholds = _thresholds(scores)
    aggregates = [_aggregate(variant, scores[variant], thresholds) for variant in variants]
    return Summary(tasks, variants, cells, thresholds, aggregates, len(tasks) > 1 or bool(options.ranges))


def variant_labels(runs: Sequence[ReportedRun]) -> dict[str, str]:
    """A name for each set of settings, made of those that not all runs share."""
    by_key = {_key(run): run for run in runs}
    names = sorted({name for run in by_key.values() for name in run.settings})
    differing = [name for name in names if len({repr(run.settings.get(name)) for run in by_key.values()}) > 1]
    labels: dict[str, str] = {}
    for key, run in by_key.items():
        parts = [
            f"{name}={value_words(run.settings.get(name))}" for name in differing if name not in ("algo", "schedule")
        ]
        own = len({other.settings.get("algo") for other in by_key.values()}) > 1
        parts = parts[:3] if not own else parts[:0]  # another algorithm has other settings altogether
        label = " ".join([f"{run.algo} {run.schedule}", *parts])[:MAX_LABEL]
        labels[key] = label if label not in labels.values() else f"{label} ({len(labels) + 1})"
    return labels


def _key(run: ReportedRun) -> str:
    return repr(sorted(run.settings.items(), key=lambda item: item[0]))


def _cells(task: str, runs: Sequence[ReportedRun], labels: Mapping[str, str], options: Options) -> list[Cell]:
    of_task: dict[str, list[ReportedRun]] = {}
    for run in runs:
        if run.task == task:
            of_task.setdefault(labels[_key(run)], []).append(run)
    finals = {label: [final_return(run.curve, options.share) for run in own] for label, own in of_task.items()}
    budget = options.budget_seconds
    if budget is None:
        budget = min(run.seconds for own in of_task.values() for run in own)
    target = options.target if options.target is not None else min(float(np.mean(own)) for own in finals.values())
    return [
        Cell(
            task=task,
            variant=label,
            runs=own,
            finals=finals[label],
            at_budget=[final_at_budget(run.curve, budget, options.share) for run in own],
            to_target=[seconds_to(run.curve, target) for run in own],
            budget_seconds=budget,
            target=target,
        )
        for label, own in of_task.items()
    ]


def _normalised(tasks: Sequence[str], cells: Sequence[Cell], options: Options) -> dict[str, list[list[float]]]:
    """Final scores by variant, a list for each task; as they are where there is one task and no range for it."""
    scores: dict[str, list[list[float]]] = {}
    for task in tasks:
        own = [cell for cell in cells if cell.task == task]
        everything = [x for cell in own for x in cell.finals]
        low, high = (0.0, 1.0) if len(tasks) == 1 else (min(everything), max(everything))
        low, high = (options.ranges or {}).get(task, (low, high))
        for cell in own:
            scale = (high - low) or 1.0
            scores.setdefault(cell.variant, []).append([(x - low) / scale for x in cell.finals])
    return scores


def _thresholds(scores: Mapping[str, Sequence[Sequence[float]]]) -> list[float]:
    everything = [x for own in scores.values() for of_task in own for x in of_task]
    low, high = min(everything), max(everything)
    margin = (high - low) * 0.05 or 1.0
    return [float(x) for x in np.linspace(low - margin, high + margin, NUM_THRESHOLDS)]


def _aggregate(variant: str, by_task: Sequence[Sequence[float]], thresholds: Sequence[float]) -> Aggregate:
    everything: Any = np.concatenate([np.asarray(scores, dtype=np.float64) for scores in by_task])[None]
    profile = performance_profile(everything, thresholds)
    band = profile_band(by_task, thresholds)
    low, high = (profile, profile) if band is None else (side.tolist() for side in band)
    return Aggregate(
        variant=variant,
        iqm=interquartile_mean(everything),
        iqm_interval=interquartile_interval(by_task),
        profile=profile,
        profile_low=low,
        profile_high=high,
        num_runs=int(everything.size),
    )
