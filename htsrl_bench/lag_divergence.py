"""What the lag does to an update of PPO, by its optimizer steps: how far apart version j-1 and version j are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from htsrl.config import Config, Experiment, Placement
from htsrl.config.presets import preset
from htsrl.metrics.sinks import read_json_lines
from htsrl.runs.folder import RunFolder
from htsrl.train import train
from htsrl_bench.lag_probe import (
    DIVERGENCE,
    GRADIENT_COSINE,
    GRADIENT_LENGTH,
    MEASURED,
    OUTSIDE_CLIP,
    RATIO_DEVIATION,
    LagProbe,
)
from htsrl_bench.record import Table

EPOCHS = 10
TASKS: Mapping[str, Experiment] = {
    "cartpole": Experiment("CartPole-v1", algorithm=LagProbe.Settings(epochs=EPOCHS)),
    "halfcheetah": replace(
        preset("HalfCheetah-v5", "ppo"), algorithm=LagProbe.Settings(epochs=EPOCHS, normalize_rewards=True)
    ),
}
FIRST = 1
"""Update whose data are of another version than it starts from."""


@dataclass(frozen=True)
class LagPoint:
    """One run."""

    task: str
    num_minibatches: int
    seed: int
    num_updates: int

    @property
    def optimizer_steps(self) -> int:
        """In an update."""
        return EPOCHS * self.num_minibatches

    def config(self) -> Config:
        base = TASKS[self.task]
        algorithm = replace(base.algorithm, num_minibatches=self.num_minibatches)
        experiment = replace(base, algorithm=algorithm, seed=self.seed, sync_interval=base.interval_steps)
        steps = self.num_updates * experiment.batch_steps
        return Config(replace(experiment, total_steps=steps), Placement("inline", tensorboard=False, check_env=False))


def measured(point: LagPoint) -> dict[str, Any]:
    """The means over the updates of a run."""
    config = point.config()
    with TemporaryDirectory(prefix="htsrl-bench-") as folder:
        run_dir = Path(folder) / "run"
        digest = train(replace(config, placement=replace(config.placement, run_dir=run_dir, progress="off"))).digest
        lines = read_json_lines(RunFolder(run_dir).metrics_file)
    means = {name: float(np.mean([line[name] or 0.0 for line in lines[FIRST:]])) for name in MEASURED}
    return {
        "task": point.task,
        "optimizer_steps": point.optimizer_steps,
        "seed": point.seed,
        "updates": len(lines) - FIRST,
        "digest": digest,
        **means,
    }


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over seeds, by task and optimizer steps."""
    tasks: dict[str, Any] = {}
    for task in dict.fromkeys(run["task"] for run in runs):
        for steps in sorted({run["optimizer_steps"] for run in runs if run["task"] == task}):
            own = [run for run in runs if (run["task"], run["optimizer_steps"]) == (task, steps)]
            means = {name: float(np.mean([run[name] for run in own])) for name in MEASURED}
            tasks.setdefault(task, {})[str(steps)] = means
    return {"num_seeds": len({run["seed"] for run in runs}), "tasks": tasks}


def tables(runs: Sequence[Mapping[str, Any]]) -> list[Table]:
    found = summary(runs)
    rows = [
        [
            task,
            steps,
            f"{of[RATIO_DEVIATION]:.3f}",
            f"{of[OUTSIDE_CLIP]:.1%}",
            f"{of[DIVERGENCE]:.4f}",
            f"{of[GRADIENT_COSINE]:.3f}",
            f"{of[GRADIENT_LENGTH]:.2f}",
        ]
        for task, by_steps in found["tasks"].items()
        for steps, of in by_steps.items()
    ]
    note = (
        "PPO under hts: at the start of an update the version that it starts from, against the one that made its data. "
        f"Means over {runs[0]['updates']} updates of each of {found['num_seeds']} seeds. Ratio: of probabilities of "
        "the actions that were taken; outside: farther from 1 than the clip; gradient: of the clipped surrogate "
        "over the whole batch, at the newest version against at the one that acted."
    )
    headings = ["task", "optimizer steps", "ratio less 1", "outside", "divergence", "gradient's cosine", "its length"]
    return [Table(headings, rows, [note])]
