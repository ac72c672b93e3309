"""The experiment of A3C-TD(0) (https://arxiv.org/abs/2012.15511): samples to a target accuracy, by number of workers.

On a random MDP with 100 states, 5 actions and 10 features, through the ordinary runtime. How good a policy is, is not
estimated but computed. Where N workers need as many samples in all as one does, each takes 1/N of the steps.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import tyro

from htsrl.config import Config, Experiment, Network, Placement
from htsrl.config.command_line import flags
from htsrl.errors import ConfigError
from htsrl.observers.observer import ObservedRun, Observer, UpdateEvent
from htsrl.statistics.intervals import Interval, mean_interval
from htsrl.systems.a3c_td0.measured import OBJECTIVE, MeasuredA3CTD0
from htsrl.systems.a3c_td0.random_mdp import random_mdp
from htsrl.train import train
from htsrl_bench.announcer import Announcer
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, Table, publish

DISCOUNT = 0.9
ACTOR_STEP_SIZE, CRITIC_STEP_SIZE = 1.0, 0.5


@dataclass(frozen=True)
class Goal:
    """An objective that lies some share of the way from that of chance to the best of a linear policy."""

    chance: float
    best: float
    share: float

    @classmethod
    def of(cls, mdp_seed: int, share: float) -> Goal:
        mdp = random_mdp(discount=DISCOUNT, seed=mdp_seed)
        return cls(mdp.objective(mdp.policy(np.zeros_like(mdp.rewards_SA))), mdp.best_objective(), share)

    @property
    def objective(self) -> float:
        return self.chance + self.share * (self.best - self.chance)


class UntilReached(Observer):
    """Ends a run once its policy is good enough, and knows after how many samples it was, and how good it is."""

    def __init__(self, goal: float) -> None:
        self._goal = goal
        self.samples: int | None = None
        self.objective = -np.inf
        """The last that was measured."""

    def on_start(self, run: ObservedRun) -> None:
        self._run = run

    def on_update(self, event: UpdateEvent) -> None:
        self.objective = event.metrics.get(OBJECTIVE, self.objective)
        if self.samples is None and self.objective >= self._goal:
            self.samples = event.steps
            self._run.stop(f"the objective reached {self._goal:.3f}")


@dataclass(frozen=True)
class Reached:
    """One run."""

    workers: int
    seed: int
    samples: int
    is_reached: bool
    """Otherwise the run ended before, and it takes more samples than these."""
    way: float
    """How much of the way from chance to the best linear policy lay behind the policy in the end."""


@dataclass(frozen=True)
class A3CTD0Experiment:
    """Samples that A3C-TD(0) needs to a target accuracy on a random MDP, with 1 to 16 workers."""

    workers: tuple[int, ...] = (1, 2, 4, 8, 16)
    """Numbers of workers."""
    seeds: int = 10
    """Runs with each, the same seeds for all."""
    lag: int = 1
    """Versions between acting and learning."""
    share: float = 0.25
    """The target: this share of the way from chance to the best linear policy."""
    max_samples: int = 10_000
    """Runs that have not come there by then are ended."""
    mdp_seed: int = 1
    """Which random MDP."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        if self.seeds < 2:
            raise ConfigError(f"seeds={self.seeds} shows no spread; use 2 or more")
        provenance, goal = Provenance.take(), Goal.of(self.mdp_seed, self.share)
        announcer, reached = Announcer(self.seeds * len(self.workers)), []
        for seed in range(1, self.seeds + 1):  # in turn: a machine that is slower for a while is so for all
            for workers in self.workers:
                announcer.begin(f"{workers} workers, seed {seed}")
                reached.append(self._reach(goal, workers, seed))
                announcer.end(f"{reached[-1].samples} samples{'' if reached[-1].is_reached else ', not reached'}")
        publish(self._record(provenance, goal, reached), self.output)
        return 0

    def config(self, workers: int, seed: int, run_dir: Path | None = None) -> Config:
        algorithm = MeasuredA3CTD0.Settings(
            actor_step_size=ACTOR_STEP_SIZE,
            critic_step_size=CRITIC_STEP_SIZE,
            discount=DISCOUNT,
            mdp_seed=self.mdp_seed,
            measure_every_steps=max(self.workers),
        )
        experiment = Experiment(
            "htsrl/RandomMdp-v0",
            {"discount": DISCOUNT, "mdp_seed": self.mdp_seed},
            imports=("htsrl.systems.a3c_td0",),
            algorithm=algorithm,
            network=Network(hidden_sizes=()),
            lag=self.lag,
            num_envs=workers,
            total_steps=self.max_samples,
            seed=seed,
        )
        return Config(experiment, Placement("inline", tensorboard=False, progress="off", run_dir=run_dir))

    def _reach(self, goal: Goal, workers: int, seed: int) -> Reached:
        observer = UntilReached(goal.objective)
        with TemporaryDirectory(prefix="htsrl-bench-") as folder:
            result = train(self.config(workers, seed, Path(folder) / "run"), observers=[observer])
        samples = result.steps if observer.samples is None else observer.samples
        way = (observer.objective - goal.chance) / (goal.best - goal.chance)
        return Reached(workers, seed, samples, observer.samples is not None, float(way))

    def _record(self, provenance: Provenance, goal: Goal, reached: Sequence[Reached]) -> Record:
        intervals = {workers: _interval(reached, workers) for workers in self.workers}
        ways = {workers: _less_fewest(reached, workers, min(self.workers)) for workers in self.workers}
        words = ["python", "-m", "htsrl_bench.systems.a3c_td0", *flags(self, A3CTD0Experiment(), leave_out=("output",))]
        return Record(
            name="system-a3c-td0",
            command=shlex.join(words),
            provenance=provenance,
            configs={f"{workers} workers": self.config(workers, seed=1) for workers in self.workers},
            repetitions=[asdict(run) for run in reached],
            summary=self._summary(goal, intervals, ways),
            tables=[self._table(goal, intervals, reached), self._table_of_ways(reached, ways)],
        )

    def _summary(self, goal: Goal, intervals: Mapping[int, Interval], ways: Mapping[int, Interval]) -> dict[str, Any]:
        few, many = min(self.workers), max(self.workers)
        return {
            "goal": {**asdict(goal), "objective": goal.objective},
            "samples": {str(workers): asdict(interval) for workers, interval in intervals.items()},
            "way_less_fewest": {str(workers): asdict(interval) for workers, interval in ways.items()},
            "highlights": {
                f"A3C-TD(0) on a random MDP, {self.seeds} seeds: samples to a target with {workers} workers": _shown(of)
                for workers, of in intervals.items()
                if workers in (few, many)
            },
        }

    def _table(self, goal: Goal, intervals: Mapping[int, Interval], reached: Sequence[Reached]) -> Table:
        one = intervals[min(self.workers)].mean / min(self.workers)
        rows = []
        for workers, interval in intervals.items():
            num_reached = sum(run.is_reached for run in reached if run.workers == workers)
            steps = interval.mean / workers
            delay = workers * (self.lag + 1) - 1
            cells = [f"{workers}", f"{num_reached} of {self.seeds}", _shown(interval), f"{steps:,.0f}"]
            rows.append([*cells, f"{one / steps:.1f}x", f"{delay}"])
        headings = ["workers N", "reached", "samples in all", "steps of each worker", "fewer steps", "delay at most"]
        note = (
            f"Samples until the exact objective first reached {goal.objective:.3f}, {goal.share:.0%} of the way from "
            f"{goal.chance:.3f}, that of chance, to {goal.best:.3f}, the best of a linear policy; looked at every "
            f"{max(self.workers)} samples. Mean over {self.seeds} seeds with its 95 % interval (Student's t). A run "
            f"that did not come there counts with its last sample, {self.max_samples} or a little more. Linear "
            "speed-up is as many samples in all with any N. The delay is in updates."
        )
        return Table(headings, rows, [note])

    def _table_of_ways(self, reached: Sequence[Reached], ways: Mapping[int, Interval]) -> Table:
        few = min(self.workers)
        rows = []
        for workers, less in ways.items():
            own = [run.way for run in reached if run.workers == workers]
            difference = "-" if workers == few else f"{less.mean:+.1%} ({less.low:+.1%} to {less.high:+.1%})"
            rows.append([f"{workers}", f"{np.mean(own):.1%}", f"{min(own):.1%} to {max(own):.1%}", difference])
        headings = ["workers N", "way in the end", "lowest to highest", f"less that of {few}"]
        note = (
            "How much of the way from chance to the best linear policy lay behind the policies when the runs ended: "
            "with equal samples where none reached the target. Differences: mean over paired seeds and its 95 % "
            "interval (Student's t)."
        )
        return Table(headings, rows, [note])


def _less_fewest(reached: Sequence[Reached], workers: int, few: int) -> Interval:
    ways = {(run.workers, run.seed): run.way for run in reached}
    seeds = sorted({run.seed for run in reached})
    interval = mean_interval([ways[workers, seed] - ways[few, seed] for seed in seeds])
    assert interval is not None, "there are two seeds or more"
    return interval


def _interval(reached: Sequence[Reached], workers: int) -> Interval:
    interval = mean_interval([run.samples for run in reached if run.workers == workers])
    assert interval is not None, "there are two seeds or more"
    return interval


def _shown(interval: Interval) -> str:
    return f"{interval.mean:,.0f} ({interval.low:,.0f} to {interval.high:,.0f})"


if __name__ == "__main__":
    sys.exit(tyro.cli(A3CTD0Experiment).run())
