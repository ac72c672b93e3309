"""The planner against measurements: what it predicts, what runs come to, and whether its choice was the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from htsrl.config import Config, Experiment, Placement, available_cores
from htsrl.config.check import check
from htsrl.errors import ConfigError
from htsrl.planning.measure import measure as measure_costs
from htsrl.planning.model import Layout, Prediction, best
from htsrl.train import train
from htsrl_bench.announcer import Announcer
from htsrl_bench.record import Summary, Table
from htsrl_bench.works import WORKS

SLEEPING = Experiment(
    "htsrl/Sleeping-v0", {"law": "exponential", "mean_seconds": 0.005}, imports=("htsrl.envs.toy",), sync_interval=20
)
KINDS: Mapping[str, Experiment] = {
    **{
        name: replace(WORKS[name], schedule="hts")
        for name in ("pong-ppo", "pong-a2c", "cartpole-ppo", "halfcheetah-ppo")
    },
    "sleeping": SLEEPING,
    "cartpole-lanes": Experiment(
        "CartPole-v1", num_envs=1024, lanes=2, sync_interval=32, algorithm=WORKS["cartpole-ppo"].algorithm
    ),
}
"""Kinds of work: a heavy network, a light one, a simulator that computes, one that waits, one that is batched."""
MAX_LAYOUTS = 4
MIN_UPDATES = 4
UNMEASURED_UPDATES = 2


@dataclass(frozen=True)
class PlanBench:
    """How much is measured."""

    work: tuple[str, ...]
    seconds_per_run: float
    plan_seconds: float
    repetitions: int

    def __post_init__(self) -> None:
        for name in self.work:
            if name not in KINDS:
                raise ConfigError(f"work {name!r} is not known; choose among {', '.join(KINDS)}")
        if self.repetitions < 1 or self.seconds_per_run <= 0 or self.plan_seconds <= 0:
            raise ConfigError("repetitions must be at least 1, seconds_per_run and plan_seconds above 0")

    def config(self, work: str, prediction: Prediction) -> Config:
        """A run of about `seconds_per_run`, if the prediction is right."""
        experiment = check(Config(KINDS[work])).experiment
        updates = max(MIN_UPDATES, round(self.seconds_per_run * prediction.steps_per_second / experiment.batch_steps))
        steps = (UNMEASURED_UPDATES + updates) * experiment.batch_steps
        return Config(replace(experiment, total_steps=steps), placement_of(prediction.layout))


def placement_of(layout: Layout) -> Placement:
    threads = {"executor_threads": True} if layout.on_threads else {"executor_threads": False, "num_actors": 0}
    return Placement(
        num_executors=layout.executors,
        learner_workers=layout.learner_workers,
        tensorboard=False,
        progress="off",
        **threads,
    )


@dataclass(frozen=True)
class Measured:
    """One run of one layout."""

    work: str
    layout: str
    predicted: float
    steps_per_second: float


def measure(bench: PlanBench) -> list[Measured]:
    """Every work is planned, then its most promising layouts are run in turn."""
    cores, measured = available_cores(), []
    announcer = Announcer(len(bench.work) * bench.repetitions)
    for _ in range(bench.repetitions):
        for work in bench.work:
            announcer.begin(work)
            experiment = check(Config(KINDS[work])).experiment
            predictions = best(experiment, measure_costs(experiment, bench.plan_seconds), cores)[:MAX_LAYOUTS]
            measured += [_run(work, bench.config(work, prediction), prediction) for prediction in predictions]
            chosen = measured[-len(predictions)]
            announcer.end(f"{chosen.steps_per_second:,.0f} steps/s, predicted {chosen.predicted:,.0f}")
    return measured


def summary(bench: PlanBench, measured: Sequence[Measured]) -> dict[str, Any]:
    """Per work: prediction over measurement of the layout that was chosen, and its speed over the best of the grid."""
    document = {}
    for work in bench.work:
        own = [run for run in measured if run.work == work]
        layouts = list(dict.fromkeys(run.layout for run in own))
        speeds = {
            layout: Summary.of([run.steps_per_second for run in own if run.layout == layout]) for layout in layouts
        }
        chosen = layouts[0]
        predicted = Summary.of([run.predicted for run in own if run.layout == chosen]).median
        fastest = max(speed.median for speed in speeds.values())
        document[work] = {
            "chosen": chosen,
            "predicted": predicted,
            "measured": speeds[chosen].median,
            "error": predicted / speeds[chosen].median - 1,
            "share_of_best": speeds[chosen].median / fastest,
            "layouts": {layout: speed.median for layout, speed in speeds.items()},
        }
    return document


def table(document: Mapping[str, Any]) -> Table:
    rows = [
        [
            work,
            of["chosen"],
            f"{of['predicted']:,.0f}",
            f"{of['measured']:,.0f}",
            f"{of['error']:+.0%}",
            f"{of['share_of_best']:.0%} of {len(of['layouts'])}",
        ]
        for work, of in document.items()
    ]
    return Table(
        ["work", "chosen", "predicted steps/s", "measured", "error", "chosen over best"],
        rows,
        [
            "Medians. Every work is planned anew in each repetition; then the layouts that were predicted to be the "
            f"fastest, {MAX_LAYOUTS} at most, are run in turn, start-up excluded.",
        ],
    )


def _run(work: str, config: Config, prediction: Prediction) -> Measured:
    with TemporaryDirectory(prefix="htsrl-bench-") as folder:
        result = train(replace(config, placement=replace(config.placement, run_dir=Path(folder) / "run")))
    return Measured(work, prediction.layout.flags, prediction.steps_per_second, result.steps_per_second)
