"""Does HTS learn what synchronous training learns? The same tasks under both schedules, several seeds each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from htsrl.bench.announcer import Announcer
from htsrl.bench.bootstrap import Difference, bootstrap_difference
from htsrl.bench.command_line import train_command
from htsrl.bench.record import Table
from htsrl.bench.tasks import SCHEDULES, Schedule, Task
from htsrl.config import Config, Placement
from htsrl.errors import HtsrlError
from htsrl.evaluate import evaluate
from htsrl.metrics.sinks import read_json_lines
from htsrl.run_folder import RunFolder
from htsrl.train import train

EVALUATION_EPISODES = 100

Curve = tuple[tuple[int, float], ...]
"""(step, mean return of the last 100 training episodes)."""


@dataclass(frozen=True)
class Learned:
    """One run and what its policy is worth."""

    schedule: Schedule
    seed: int
    score: float
    """Mean return of the evaluation."""
    score_deviation: float
    digest: str
    steps: int
    steps_per_second: float
    command: str
    curve: Curve

    @property
    def mean_over_run(self) -> float:
        """The area under the learning curve, over its length: early learners score higher."""
        steps, returns = np.asarray(self.curve, dtype=np.float64).T
        return float(np.trapezoid(returns, steps) / (steps[-1] - steps[0])) if len(steps) > 1 else float(returns[0])


def learn(task: Task, seeds: Sequence[int], placement: Placement, announcer: Announcer) -> list[Learned]:
    """Train and evaluate the task under both schedules with every seed."""
    learned = []
    for seed in seeds:
        for schedule in SCHEDULES:
            announcer.begin(f"{task.name}, {schedule}, seed {seed}")
            learned.append(_learn_once(task, seed, schedule, placement))
            announcer.end(f"score {learned[-1].score:.1f}")
    return learned


@dataclass(frozen=True)
class Verdict:
    """The schedules side by side, over all seeds."""

    goal: float
    reached: Mapping[str, int]
    """Seeds that reached the goal, by schedule."""
    mean_over_run: Mapping[str, float]
    difference: Difference | None
    """Of the mean return over the run, hts less sync; None for a single seed, which has no noise to compare with."""

    @classmethod
    def of(cls, task: Task, learned: Sequence[Learned]) -> Verdict:
        runs = {schedule: [run for run in learned if run.schedule == schedule] for schedule in SCHEDULES}
        areas = {schedule: [run.mean_over_run for run in of_schedule] for schedule, of_schedule in runs.items()}
        return cls(
            goal=task.goal,
            reached={schedule: sum(run.score >= task.goal for run in of_one) for schedule, of_one in runs.items()},
            mean_over_run={schedule: float(np.mean(values)) for schedule, values in areas.items()},
            difference=bootstrap_difference(areas["hts"], areas["sync"]) if len(areas["hts"]) > 1 else None,
        )

    def document(self) -> dict[str, Any]:
        within_noise = self.difference.within_noise if self.difference else None
        return {**asdict(self), "within_noise": within_noise}

    def sentence(self) -> str:
        means = ", ".join(f"{schedule} {mean:.1f}" for schedule, mean in self.mean_over_run.items())
        found = f"Mean return over the run: {means}"
        if self.difference is None:
            return f"{found}; one seed says nothing about noise."
        difference = self.difference
        inside = "within" if difference.within_noise else "outside"
        return (
            f"{found}; hts less sync is {difference.mean:+.1f}, 95 % interval {difference.low:+.1f} to "
            f"{difference.high:+.1f} (bootstrap over seeds): {inside} noise."
        )


def tables(task: Task, learned: Sequence[Learned]) -> list[Table]:
    rows = [
        [
            run.schedule,
            f"{run.seed}",
            f"{run.score:.1f} +- {run.score_deviation:.1f}",
            "yes" if run.score >= task.goal else "no",
            f"{run.mean_over_run:.1f}",
        ]
        for run in sorted(learned, key=lambda run: (SCHEDULES.index(run.schedule), run.seed))
    ]
    goal = (
        f"Score: mean return of {EVALUATION_EPISODES} episodes, most likely actions, after "
        f"{learned[0].steps:,} steps; goal {task.goal:g}."
    )
    scores = Table(
        ["schedule", "seed", "score", "goal reached", "mean over run"],
        rows,
        [goal, Verdict.of(task, learned).sentence()],
    )
    commands = Table(
        ["schedule", "seed", "command", "digest"],
        [[run.schedule, f"{run.seed}", f"`{run.command}`", f"`{run.digest}`"] for run in learned],
    )
    return [scores, commands]


def _learn_once(task: Task, seed: int, schedule: Schedule, placement: Placement) -> Learned:
    experiment = task.with_seed(seed, schedule)
    with TemporaryDirectory(prefix="htsrl-bench-") as folder:
        run_dir = Path(folder) / "run"
        result = train(Config(experiment, replace(placement, run_dir=run_dir, progress="off")))
        evaluation = evaluate(run_dir, EVALUATION_EPISODES)
        curve = read_curve(run_dir)
    return Learned(
        schedule=schedule,
        seed=seed,
        score=evaluation.mean_return,
        score_deviation=evaluation.std_return,
        digest=result.digest,
        steps=result.steps,
        steps_per_second=result.steps_per_second,
        command=train_command(experiment, EVALUATION_EPISODES),
        curve=curve,
    )


def read_curve(run_dir: Path) -> Curve:
    records = read_json_lines(RunFolder(run_dir).metrics_file)
    points = [(record["step"], record.get("rollout/ep_rew_mean")) for record in records]
    curve = tuple((int(step), mean) for step, mean in points if step is not None and mean is not None)
    if not curve:
        raise HtsrlError("no episode ended during the run, so there is no learning curve; give the task more steps")
    return curve
