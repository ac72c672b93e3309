"""Does HTS learn what synchronous training learns? The same tasks in several ways, several seeds each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from htsrl.bench.announcer import Announcer
from htsrl.bench.bootstrap import Difference, bootstrap_difference
from htsrl.bench.command_line import train_command
from htsrl.bench.finished_runs import FinishedRuns
from htsrl.bench.learned import Learned, read_curve
from htsrl.bench.record import Table
from htsrl.bench.tasks import Task
from htsrl.config import Config, Placement
from htsrl.evaluate import evaluate
from htsrl.train import train

EVALUATION_EPISODES = 100


@dataclass(frozen=True)
class Learning:
    """How a task is learned, and where what has finished is kept."""

    ways: Sequence[str]
    seeds: Sequence[int]
    placement: Placement
    finished: FinishedRuns
    commit: str | None

    def learn(self, task: Task, announcer: Announcer) -> list[Learned]:
        """Train and evaluate the task in every way with every seed, unless it was before; the ways take turns."""
        learned = []
        for seed, way in product(self.seeds, self.ways):
            announcer.begin(f"{task.name}, {way}, seed {seed}")
            run = self.found(task, way, seed)
            if run is None:
                run = self._learn_once(task, way, seed)
                self.finished.put(task.name, run)
            announcer.end(f"score {run.score:.1f}")
            learned.append(run)
        return learned

    def found(self, task: Task, way: str, seed: int) -> Learned | None:
        """A run that has finished before."""
        return self.finished.find(task.name, way, seed, _command(task, way, seed))

    def _learn_once(self, task: Task, way: str, seed: int) -> Learned:
        with TemporaryDirectory(prefix="htsrl-bench-") as folder:
            run_dir = Path(folder) / "run"
            placement = replace(self.placement, run_dir=run_dir, progress="off")
            result = train(Config(task.with_seed(seed, way), placement))
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
            command=_command(task, way, seed),
            commit=self.commit,
            curve=curve,
        )


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


def _command(task: Task, way: str, seed: int) -> str:
    return train_command(task.with_seed(seed, way), EVALUATION_EPISODES)
