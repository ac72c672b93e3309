"""A thousand environments that wait: steps per second under every schedule, CPU time of a step, memory of each."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, get_args

import numpy as np

from htsrl.algorithms.a2c import A2C
from htsrl.config import Config, Experiment, Placement
from htsrl.envs.check.claims import Barrier, StepTime, bound_steps_per_second
from htsrl.errors import ConfigError
from htsrl.planning.soft_barrier import Floats, hts_seconds
from htsrl.train import train
from htsrl_bench.announcer import Announcer
from htsrl_bench.live_run import LiveRun, live_run, rate
from htsrl_bench.process_tree import cpu_seconds, memory_of, tree_of
from htsrl_bench.record import Summary, Table

Schedule = Literal["hts", "sync", "async", "lockstep"]
Law = Literal["exponential", "pareto"]
NEVER_ENDING = 10**9
MIN_UPDATES = 2
"""Measured in a run, however slow."""
LOOK_SECONDS = 0.2
SIMULATED_INTERVALS = 100
SHORT_SECONDS = 0.0005
"""Mean step of the runs whose digests are compared, one of which steps all environments in turn."""
COMPARED_UPDATES = 3
COMPARED_INTERVAL = 5


@dataclass(frozen=True)
class WaitingBench:
    """The settings of all runs; what differs between them is the schedule."""

    num_envs: int
    few_envs: int
    """Memory is measured with so many, too: what more environments take is theirs."""
    mean_seconds: float
    law: Law
    shape: float
    """Of the Pareto law: 2 and less has no variance."""
    sync_interval: int
    schedules: tuple[Schedule, ...]
    seconds_per_run: float
    repetitions: int

    def __post_init__(self) -> None:
        if "hts" not in self.schedules or set(self.schedules) - set(get_args(Schedule)):
            raise ConfigError(f"give schedules among {', '.join(get_args(Schedule))}, hts in any case")
        if not 1 <= self.few_envs < self.num_envs:
            raise ConfigError(f"few_envs={self.few_envs} must be at least 1 and below num_envs={self.num_envs}")
        if self.repetitions < 1 or self.seconds_per_run <= 0:
            raise ConfigError(
                f"repetitions={self.repetitions} must be at least 1, seconds_per_run={self.seconds_per_run:g} above 0"
            )

    def config(self, schedule: Schedule, num_envs: int) -> Config:
        return Config(
            Experiment(
                "htsrl/Sleeping-v0",
                {"law": self.law, "mean_seconds": self.mean_seconds, "shape": self.shape},
                imports=("htsrl.envs.toy",),
                algorithm=A2C(),
                schedule=schedule,
                num_envs=num_envs,
                sync_interval=self.sync_interval,
                total_steps=NEVER_ENDING,
            ),
            Placement(executor_threads=True, log_every_steps=1, tensorboard=False, progress="off", check_env=False),
        )

    def configs(self) -> dict[str, Config]:
        """In the order in which they take turns."""
        few = f"hts, {self.few_envs} environments"
        return {name: self.config(name, self.num_envs) for name in self.schedules} | {
            few: self.config("hts", self.few_envs)
        }


@dataclass(frozen=True)
class Measured:
    """One run, seen from outside."""

    config: str
    repetition: int
    steps_per_second: float
    cpu_microseconds: float
    """Of all processes, for one step."""
    megabytes: float


def measure(bench: WaitingBench) -> list[Measured]:
    """All runs in turn."""
    configs, measured = bench.configs(), []
    announcer = Announcer(bench.repetitions * len(configs))
    for repetition in range(1, bench.repetitions + 1):
        for name, config in configs.items():
            announcer.begin(name)
            with live_run(replace(config, experiment=replace(config.experiment, seed=repetition))) as run:
                measured.append(_watch(run, name, repetition, bench.seconds_per_run))
            announcer.end(f"{measured[-1].steps_per_second:,.0f} steps/s")
    return measured


def _watch(run: LiveRun, name: str, repetition: int, seconds: float) -> Measured:
    run.wait_until(lambda: len(run.updates()) >= MIN_UPDATES, LOOK_SECONDS)
    begun, begin, cpu = len(run.updates()), time.monotonic(), cpu_seconds(tree_of(run.pid))
    time.sleep(seconds)
    run.wait_until(lambda: len(run.updates()) >= begun + MIN_UPDATES, LOOK_SECONDS)
    pids = tree_of(run.pid)
    speed = rate(run.updates()[begun - 1 :])
    cpu_of_step = (cpu_seconds(pids) - cpu) / (time.monotonic() - begin) / speed
    return Measured(name, repetition, speed, 1e6 * cpu_of_step, sum(memory_of(pid).pss for pid in pids))


def digests(num_envs: int) -> dict[str, str]:
    """Of one short experiment on one thread, on 64 and on one for each environment."""
    experiment = Experiment(
        "htsrl/Sleeping-v0",
        {"mean_seconds": SHORT_SECONDS},
        imports=("htsrl.envs.toy",),
        algorithm=A2C(),
        num_envs=num_envs,
        sync_interval=COMPARED_INTERVAL,
        total_steps=COMPARED_UPDATES * COMPARED_INTERVAL * num_envs,
    )
    quiet = Placement(tensorboard=False, progress="off", check_env=False)
    ways = {
        "all in turn": replace(quiet, executor_threads=False, num_executors=1),
        "64 at once": replace(quiet, executor_threads=True, max_running=64),
        "all at once": replace(quiet, executor_threads=True),
    }
    found = {}
    for name, placement in ways.items():
        with TemporaryDirectory(prefix="htsrl-bench-") as folder:
            found[name] = train(Config(experiment, replace(placement, run_dir=Path(folder) / "run"))).digest
    return found


def intervals(bench: WaitingBench, num_intervals: int = SIMULATED_INTERVALS) -> Floats:
    """Drawn seconds of each environment for each interval: [interval, environment]."""
    generator, shape = np.random.default_rng(0), (bench.sync_interval, bench.num_envs)
    if bench.law == "exponential":
        drawn = (generator.exponential(bench.mean_seconds, shape).sum(axis=0) for _ in range(num_intervals))
    else:
        scale = bench.mean_seconds * (bench.shape - 1) / bench.shape
        drawn = (scale * (1 + generator.pareto(bench.shape, shape)).sum(axis=0) for _ in range(num_intervals))
    return np.stack(list(drawn))


def limits(bench: WaitingBench) -> dict[str, float]:
    """Steps per second: Claim 1's bound, by its formula where there is one, and the limit of htsrl's softer barrier."""
    seconds, steps = intervals(bench), bench.num_envs * bench.sync_interval
    barrier = Barrier(bench.num_envs, bench.sync_interval)
    has_formula = bench.law == "exponential"
    return {
        "claim_1": bound_steps_per_second(barrier, StepTime(bench.mean_seconds))
        if has_formula
        else steps / float(seconds.max(axis=1).mean()),
        "soft_barrier": steps * len(seconds) / hts_seconds(seconds),
        "no_barrier": bench.num_envs / bench.mean_seconds,
    }


def summary(bench: WaitingBench, measured: Sequence[Measured], found: Mapping[str, str]) -> dict[str, Any]:
    document: dict[str, Any] = {"limits": limits(bench), "digests": dict(found), "schedules": {}}
    for name in bench.configs():
        own = [run for run in measured if run.config == name]
        document["schedules"][name] = {
            key: asdict(Summary.of([getattr(run, key) for run in own]))
            for key in ("steps_per_second", "cpu_microseconds", "megabytes")
        }
    of = document["schedules"]
    less = of[f"hts, {bench.few_envs} environments"]["megabytes"]["median"]
    more = of["hts"]["megabytes"]["median"]
    document["megabytes_per_env"] = (more - less) / (bench.num_envs - bench.few_envs)
    document["share_of_claim_1"] = of["hts"]["steps_per_second"]["median"] / document["limits"]["claim_1"]
    return document


def table(bench: WaitingBench, document: Mapping[str, Any]) -> Table:
    bounds, hts = document["limits"], document["schedules"]["hts"]["steps_per_second"]["median"]
    rows = []
    for name, of in document["schedules"].items():
        is_few = name not in bench.schedules
        speed = Summary(**of["steps_per_second"])
        rows.append(
            [
                name,
                str(speed),
                "" if is_few else f"{speed.median / bounds['claim_1']:.0%}",
                "" if is_few else f"{hts / speed.median:.2f}",
                f"{of['cpu_microseconds']['median']:.0f}",
                f"{of['megabytes']['median']:,.0f}",
            ]
        )
    return Table(
        ["schedule", "steps/s", "of Claim 1's bound", "hts / it", "CPU us a step", "MB in all"],
        rows,
        _notes(bench, document),
    )


def _notes(bench: WaitingBench, document: Mapping[str, Any]) -> list[str]:
    law = "exponential" if bench.law == "exponential" else f"Pareto with shape {bench.shape:g}"
    bounds, equal = document["limits"], len(set(document["digests"].values())) == 1
    return [
        f"{bench.num_envs:,} environments on a thread each whose step sleeps {bench.mean_seconds * 1000:g} ms on "
        f"average ({law}), alpha {bench.sync_interval}, a2c; median (lowest to highest) of {bench.repetitions} seeds, "
        f"whole updates over at least {bench.seconds_per_run:g} s.",
        "Claim 1's bound holds for environments that all wait for the slowest after every interval"
        + ("." if bench.law == "exponential" else "; it is simulated, for there is no formula for this law."),
        f"Claim 1: {bounds['claim_1']:,.0f} steps/s. htsrl's softer barrier, simulated with learning and acting that "
        f"take no time: {bounds['soft_barrier']:,.0f}. No barrier: {bounds['no_barrier']:,.0f}.",
        f"An environment takes {document['megabytes_per_env']:.2f} MB: what {bench.num_envs:,} take more than "
        f"{bench.few_envs}, over their number.",
        f"Digests of a short run with {bench.num_envs:,} environments, {', '.join(document['digests'])}: "
        f"{'equal' if equal else 'NOT EQUAL'}.",
    ]
