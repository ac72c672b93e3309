"""Runs with sleeping environments, each a point of a figure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from htsrl.algorithms.a2c import A2C
from htsrl.algorithms.ppo import PPO
from htsrl.config import Config, Experiment, Placement, with_seed
from htsrl.envs.check.claims import Barrier, StepTime, bound_steps_per_second, free_steps_per_second
from htsrl.metrics.sinks import read_json_lines
from htsrl.runs.folder import RunFolder
from htsrl.train import train
from htsrl_bench.simulations import simulate_hts_steps_per_second

UNMEASURED_INTERVALS = 2
"""Until the clock starts: HTS fills its pipeline with two rollouts."""
MIN_INTERVALS = 2
"""Measured in a run, however slow."""
SIMULATED_INTERVALS = 400
NUM_MINIBATCHES = 4


@dataclass(frozen=True)
class Point:
    """One setting."""

    schedule: Literal["hts", "lockstep", "async"] = "hts"
    num_envs: int = 16
    on_threads: bool = True
    """Each steps on a thread of its own, as environments that wait do by default; otherwise in a process of its own."""
    sync_interval: int = 20
    cv: float = 1.0
    """Standard deviation of the step time over its mean: 1 is the exponential law."""
    num_actors: int = 1
    epochs: int = 0
    """0: A2C, whose learning takes next to no time. Otherwise those of PPO, and what learning takes is measured."""
    queue_length: int = 2
    """Of async."""

    @property
    def name(self) -> str:
        words = [self.schedule, f"n {self.num_envs}", f"alpha {self.sync_interval}", f"cv {self.cv:g}"]
        words += [f"{self.num_actors} actors"] if self.num_actors > 1 else []
        words += ["a process each"] if not self.on_threads else []
        return ", ".join([*words, *([f"PPO with {self.epochs} epochs"] if self.epochs else [])])

    def bound(self, mean_seconds: float) -> float:
        """Claim 1's steps per second: a barrier every alpha steps for hts, every step for lockstep; async has none."""
        if self.schedule == "async":
            return free_steps_per_second(self.num_envs, StepTime(mean_seconds, self.cv))
        every = self.sync_interval if self.schedule == "hts" else 1
        return bound_steps_per_second(Barrier(self.num_envs, every), StepTime(mean_seconds, self.cv))

    def soft_limit(self, mean_seconds: float) -> float:
        """Of htsrl's own barrier, by simulation."""
        barrier = Barrier(self.num_envs, self.sync_interval)
        return simulate_hts_steps_per_second(barrier, StepTime(mean_seconds, self.cv), SIMULATED_INTERVALS)

    def config(self, mean_seconds: float, seconds: float) -> Config:
        """Whole intervals for about so many seconds, and those before the clock starts."""
        batch_steps = self.num_envs * self.sync_interval
        intervals = max(MIN_INTERVALS, round(seconds * self.bound(mean_seconds) / batch_steps))
        experiment = Experiment(
            env="htsrl/Sleeping-v0",
            env_args=self._sleep(mean_seconds),
            imports=("htsrl.envs.toy",),
            algorithm=PPO(epochs=self.epochs, num_minibatches=NUM_MINIBATCHES) if self.epochs else A2C(),
            schedule=self.schedule,
            queue_length=self.queue_length,
            num_envs=self.num_envs,
            sync_interval=self.sync_interval,
            total_steps=(UNMEASURED_INTERVALS + intervals) * batch_steps,
        )
        placement = Placement(
            num_executors=1 if self.on_threads else self.num_envs,
            executor_threads=self.on_threads,
            num_actors=self.num_actors,
            log_every_steps=1 if self.epochs else 2048,
            tensorboard=False,
            progress="off",
        )
        return Config(experiment, placement)

    def _sleep(self, mean_seconds: float) -> dict[str, Any]:
        if self.cv == 0:
            return {"law": "constant", "mean_seconds": mean_seconds}
        return {"law": "exponential" if self.cv == 1 else "gamma", "mean_seconds": mean_seconds, "cv": self.cv}


def lockstep(point: Point) -> Point:
    return replace(point, schedule="lockstep")


@dataclass(frozen=True)
class Measured:
    """One run of a point."""

    point: Point
    seed: int
    steps_per_second: float
    learning_seconds: float | None
    """Time in which the learner did not wait, for one update, where it was measured."""
    lag: float | None = None
    """Versions that the data were behind, on average over the second half of the run, where it was measured."""
    load: float | None = None
    """The share of the time that the learner did not wait, in that half."""


Run = Callable[[Point, float, float, int], Measured]


def run_point(point: Point, mean_seconds: float, seconds: float, seed: int) -> Measured:
    config = with_seed(point.config(mean_seconds, seconds), seed)
    with TemporaryDirectory(prefix="htsrl-bench-") as folder:
        run_dir = Path(folder) / "run"
        result = train(replace(config, placement=replace(config.placement, run_dir=run_dir)))
        lines = read_json_lines(RunFolder(run_dir).metrics_file) if point.epochs else []
    if not point.epochs:
        return Measured(point, seed, result.steps_per_second, learning_seconds=None)
    second_half = lines[len(lines) // 2 - 1 :]
    return Measured(
        point, seed, result.steps_per_second, _learning_seconds(lines), _lag(second_half), _load(second_half)
    )


def _learning_seconds(lines: list[dict[str, Any]]) -> float:
    """Between the first update and the last."""
    return _busy_seconds(lines) / (len(lines) - 1)


def _lag(lines: list[dict[str, Any]]) -> float:
    return sum(float(line["hts/lag"]) for line in lines) / len(lines)


def _load(lines: list[dict[str, Any]]) -> float:
    return _busy_seconds(lines) / _seconds(lines, "time/time_elapsed")


def _busy_seconds(lines: list[dict[str, Any]]) -> float:
    """By the clock: a learner that others keep from the CPU is busy all the same."""
    return _seconds(lines, "time/time_elapsed") - _seconds(lines, "wait/learner_seconds")


def _seconds(lines: list[dict[str, Any]], clock: str) -> float:
    return float(lines[-1][clock] - lines[0][clock])
