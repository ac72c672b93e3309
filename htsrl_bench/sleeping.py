"""Environments that sleep: how close HTS comes to Claim 1, and how far it leaves a barrier at every step behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from htsrl.algorithms.a2c import A2C
from htsrl.algorithms.ppo import PPO
from htsrl.config import Config, Experiment, Placement, with_seed
from htsrl.envs.check.claims import Barrier, StepTime, bound_steps_per_second, free_steps_per_second
from htsrl.errors import ConfigError
from htsrl.train import train
from htsrl_bench.announcer import Announcer
from htsrl_bench.record import Summary, Table
from htsrl_bench.simulations import simulate_hts_steps_per_second

Schedule = Literal["hts", "lockstep"]
SCHEDULES: tuple[Schedule, ...] = ("hts", "lockstep")

UNMEASURED_INTERVALS = 2
"""HTS fills its pipeline with two rollouts before it needs the learner. If that starts up last, it finds both done."""
MIN_INTERVALS = 2
"""Measured in a run, however slow."""
SIMULATED_INTERVALS = 400


@dataclass(frozen=True)
class SleepingBench:
    """The settings of all runs; what differs between them is the schedule and the sync interval."""

    num_envs: int
    step_time: StepTime
    law: Literal["exponential", "gamma"]
    algo: Literal["a2c", "ppo"]
    intervals: tuple[int, ...]
    seconds_per_run: float
    repetitions: int

    def __post_init__(self) -> None:
        if not self.intervals:
            raise ConfigError("intervals is empty; give one or more, such as 20 128")
        if self.repetitions < 1 or self.seconds_per_run <= 0:
            raise ConfigError(
                f"repetitions={self.repetitions} must be at least 1, seconds_per_run={self.seconds_per_run:g} above 0"
            )

    def barrier(self, sync_interval: int) -> Barrier:
        return Barrier(self.num_envs, sync_interval)

    def bound(self, sync_interval: int) -> float:
        """Claim 1's, in steps per second."""
        return bound_steps_per_second(self.barrier(sync_interval), self.step_time)

    def config(self, schedule: Schedule, sync_interval: int) -> Config:
        env_args = {"law": self.law, "mean_seconds": self.step_time.mean_seconds, "cv": self.step_time.cv}
        experiment = Experiment(
            env="htsrl/Sleeping-v0",
            env_args=env_args,
            imports=("htsrl.envs.toy",),
            algorithm=A2C() if self.algo == "a2c" else PPO(),
            schedule=schedule,
            num_envs=self.num_envs,
            sync_interval=sync_interval,
            total_steps=self.total_steps(schedule, sync_interval),
        )
        return Config(experiment, Placement(num_executors=self.num_envs, num_actors=1, tensorboard=False))

    def total_steps(self, schedule: Schedule, sync_interval: int) -> int:
        """Whole intervals for about `seconds_per_run`, and those before the clock starts."""
        steps_per_second = self.bound(sync_interval if schedule == "hts" else 1)
        batch_steps = self.num_envs * sync_interval
        measured_intervals = max(MIN_INTERVALS, round(self.seconds_per_run * steps_per_second / batch_steps))
        return (UNMEASURED_INTERVALS + measured_intervals) * batch_steps

    def configs(self) -> dict[str, Config]:
        """Every configuration once, in the order in which they take turns."""
        return {
            _name(schedule, sync_interval): self.config(schedule, sync_interval)
            for sync_interval in self.intervals
            for schedule in SCHEDULES
        }


@dataclass(frozen=True)
class Measured:
    """One run."""

    config: str
    seed: int
    steps_per_second: float
    """From the second update to the last."""


def measure(bench: SleepingBench) -> list[Measured]:
    """All runs, interleaved: whatever slows the machine for a while slows both sides.

    Each repetition has a seed of its own, hence other sleeps: the spread shows their luck as well.
    """
    configs = bench.configs()
    announcer = Announcer(bench.repetitions * len(configs))
    measured = []
    for seed in range(1, bench.repetitions + 1):
        for name, config in configs.items():
            announcer.begin(f"{name}, seed {seed}")
            measured.append(_run(name, with_seed(config, seed)))
            announcer.end(f"{measured[-1].steps_per_second:,.0f} steps/s")
    return measured


@dataclass(frozen=True)
class Row:
    """What is known about one sync interval."""

    sync_interval: int
    hts: Summary
    lockstep: Summary
    bound: float
    bound_every_step: float
    hts_limit: float
    """Of htsrl's own barrier, by simulation."""

    @property
    def share_of_bound(self) -> float:
        return self.hts.median / self.bound

    @property
    def ratio(self) -> float:
        return self.hts.median / self.lockstep.median

    @property
    def bound_ratio(self) -> float:
        return self.bound / self.bound_every_step

    def document(self) -> Mapping[str, Any]:
        derived = {name: getattr(self, name) for name in ("share_of_bound", "ratio", "bound_ratio")}
        return {**asdict(self), **derived}


def rows(bench: SleepingBench, measured: Sequence[Measured]) -> list[Row]:
    def summary(schedule: Schedule, sync_interval: int) -> Summary:
        name = _name(schedule, sync_interval)
        return Summary.of([run.steps_per_second for run in measured if run.config == name])

    return [
        Row(
            sync_interval=alpha,
            hts=summary("hts", alpha),
            lockstep=summary("lockstep", alpha),
            bound=bench.bound(alpha),
            bound_every_step=bench.bound(1),
            hts_limit=simulate_hts_steps_per_second(bench.barrier(alpha), bench.step_time, SIMULATED_INTERVALS),
        )
        for alpha in bench.intervals
    ]


def table(bench: SleepingBench, rows: Sequence[Row]) -> Table:
    headings = [
        "alpha", "HTS steps/s", "Claim 1 bound", "share of bound", "soft limit", "lockstep steps/s", "ratio",
        "bound's ratio",
    ]  # fmt: skip
    cells = [
        [
            f"{row.sync_interval}",
            f"{row.hts}",
            f"{row.bound:,.0f}",
            f"{row.share_of_bound:.0%}",
            f"{row.hts_limit:,.0f}",
            f"{row.lockstep}",
            f"{row.ratio:.2f}",
            f"{row.bound_ratio:.2f}",
        ]
        for row in rows
    ]
    return Table(headings, cells, _notes(bench))


def _notes(bench: SleepingBench) -> list[str]:
    time = bench.step_time
    return [
        f"{bench.num_envs} environments whose step sleeps {time.mean_seconds * 1000:g} ms on average ({bench.law}, "
        f"standard deviation {time.cv:g} of the mean), {bench.algo}, one executor each and one actor; median (lowest "
        f"to highest) of {bench.repetitions} seeds, start-up excluded.",
        f"Lockstep waits for all environments at every step, which Claim 1 bounds to {bench.bound(1):,.0f} steps/s, "
        f"and learns in turn. Without any barrier it would be {free_steps_per_second(bench.num_envs, time):,.0f}.",
        "HTS can exceed Claim 1's bound: the claim lets everybody wait for the slowest after each interval, while here "
        "an environment begins rollout j as soon as version j-1 is published, even if others still finish "
        "rollout j-1. The soft limit is that rule's own, simulated with learning and acting that take no time.",
    ]


def _run(name: str, config: Config) -> Measured:
    with TemporaryDirectory(prefix="htsrl-bench-") as folder:
        placement = replace(config.placement, run_dir=Path(folder) / "run", progress="off")
        result = train(replace(config, placement=placement))
    return Measured(name, config.experiment.seed, result.steps_per_second)


def _name(schedule: Schedule, sync_interval: int) -> str:
    return f"{schedule}, alpha {sync_interval}"
