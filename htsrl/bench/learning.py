"""Does HTS learn what synchronous training learns? The same tasks in several ways, several seeds each."""

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
from htsrl.bench.tasks import Task
from htsrl.config import Config, Placement
from htsrl.errors import HtsrlError
from htsrl.evaluate import evaluate
from htsrl.metrics.sinks import read_json_lines
from htsrl.run_folder import RunFolder
from htsrl.train import train

EVALUATION_EPISODES = 100

Curve = tuple[tuple[int, float, float], ...]
"""(step, mean return of the last 100 training episodes, seconds since the start)."""


@dataclass(frozen=True)
class Learned:
    """One run and what its policy is worth."""

    way: str
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
        steps, returns, _ = np.asarray(self.curve, dtype=np.float64).T
        return float(np.trapezoid(returns, steps) / (steps[-1] - steps[0])) if len(steps) > 1 else float(returns[0])


def learn(
    task: Task, ways: Sequence[str], seeds: Sequence[int], placement: Placement, announcer: Announcer
) -> list[Learned]:
    """Train and evaluate the task in every way with every seed; the ways take turns."""
    learned = []
    for seed in seeds:
        for way in ways:
            announcer.begin(f"{task.name}, {way}, seed {seed}")
            learned.append(_learn_once(task, seed, way, placement))
            announcer.end(f"score {learned[-1].score:.1f}")
    return learned


@dataclass(frozen=True)
class Verdict:
    """The ways side by side, over all seeds."""

    goal: float
    reached: Mapping[str, int]
    """Seeds that reached the goal, by way."""
    mean_over_run: Mapping[str, float]
    differences: Mapping[str, Difference]
    """Of the mean return over the run, hts less each other way; none for a single seed, which has no noise."""

    @classmethod
    def of(cls, task: Task, learned: Sequence[Learned]) -> Verdict:
        runs = {way: [run for run in learned if run.way == way] for way in ways_of(learned)}
        areas = {way: [run.mean_over_run for run in of_way] for way, of_way in runs.items()}
        ours = areas.get("hts", [])
        return cls(
            goal=task.goal,
            reached={way: sum(run.score >= task.goal for run in of_way) for way, of_way in runs.items()},
            mean_over_run={way: float(np.mean(values)) for way, values in areas.items()},
            differences={
                way: bootstrap_difference(ours, values)
                for way, values in areas.items()
                if way != "hts" and len(ours) > 1 and len(values) > 1
            },
        )

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "within_noise": {way: found.within_noise for way, found in self.differences.items()}}

    def sentences(self) -> list[str]:
        means = ", ".join(f"{way} {mean:.4g}" for way, mean in self.mean_over_run.items())
        found = f"Mean return over the run: {means}"
        if not self.differences:
            return [f"{found}; one seed says nothing about noise."]
        return [
            f"{found}.",
            *(
                f"hts less {way} is {difference.mean:+.4g}, 95 % interval {difference.low:+.4g} to "
                f"{difference.high:+.4g} (bootstrap over seeds): {'within' if difference.within_noise else 'outside'} "
                "noise."
                for way, difference in self.differences.items()
            ),
        ]


def ways_of(learned: Sequence[Learned]) -> list[str]:
    return list(dict.fromkeys(run.way for run in learned))


def tables(task: Task, learned: Sequence[Learned]) -> list[Table]:
    rows = [
        [
            run.way,
            f"{run.seed}",
            f"{run.score:.4g} +- {run.score_deviation:.4g}",
            "yes" if run.score >= task.goal else "no",
            f"{run.mean_over_run:.4g}",
            f"{run.curve[-1][2] / 60:.1f}",
        ]
        for run in sorted(learned, key=lambda run: (ways_of(learned).index(run.way), run.seed))
    ]
    goal = (
        f"Score: mean return of {EVALUATION_EPISODES} episodes, most likely actions, after "
        f"{learned[0].steps:,} steps; goal {task.goal:g}."
    )
    scores = Table(
        ["way", "seed", "score", "goal reached", "mean over run", "minutes"],
        rows,
        [goal, *Verdict.of(task, learned).sentences()],
    )
    commands = Table(
        ["way", "seed", "command", "digest"],
        [[run.way, f"{run.seed}", f"`{run.command}`", f"`{run.digest}`"] for run in learned],
    )
    return [scores, commands]


def _learn_once(task: Task, seed: int, way: str, placement: Placement) -> Learned:
    experiment = task.with_seed(seed, way)
    with TemporaryDirectory(prefix="htsrl-bench-") as folder:
        run_dir = Path(folder) / "run"
        result = train(Config(experiment, replace(placement, run_dir=run_dir, progress="off")))
        evaluation = evaluate(run_dir, EVALUATION_EPISODES)
        curve = read_curve(run_dir)
    return Learned(
        way=way,
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
    points = [(x["step"], x.get("rollout/ep_rew_mean"), x.get("time/time_elapsed") or 0.0) for x in records]
    curve = tuple((int(step), mean, at) for step, mean, at in points if step is not None and mean is not None)
    if not curve:
        raise HtsrlError("no episode ended during the run, so there is no learning curve; give the task more steps")
    return curve
