"""The experiment of A3C-TD(0) (https://arxiv.org/abs/2012.15511): samples to a target accuracy, by number of workers.

On random MDPs with 100 states, 5 actions and 10 features, through the ordinary runtime. How good a policy is, is not
estimated but computed. Where N workers need as many samples in all as one does, each takes 1/N of the steps.
"""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

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
PILOT_SEED = 0
"""Of the run that sets the target; the runs that are counted have seeds from 1 on."""


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
class Goal:
    """The target on one MDP: a share of the way from the objective of chance to where a long run of one worker ends."""

    mdp_seed: int
    chance: float
    pilot: float
    """The objective at the end of the long run."""
    best: float
    """That of the best policy that is linear in the features, found with exact gradients."""
    share: float

    @property
    def objective(self) -> float:
        return self.chance + self.share * (self.pilot - self.chance)


@dataclass(frozen=True)
class Reached:
    """One run."""

    mdp_seed: int
    workers: int
    seed: int
    samples: int
    is_reached: bool
    """Otherwise the run ended before, and it takes more samples than these."""


@dataclass(frozen=True)
class A3CTD0Experiment:
    """Samples that A3C-TD(0) needs to a target accuracy on random MDPs, with 1 to 16 workers."""

    workers: tuple[int, ...] = (1, 2, 4, 8, 16)
    """Numbers of workers."""
    mdp_seeds: tuple[int, ...] = (21, 22, 23, 24)
    """Which random MDPs."""
    seeds: int = 5
    """Runs with each number of workers on each MDP, the same seeds for all."""
    lag: int = 1
    """Versions between acting and learning."""
    share: float = 0.25
    """The target: this share of the way from chance to where a run of one worker with `max_samples` ends."""
    max_samples: int = 5_000
    """Samples of the run that sets the target; others that have not come there by then are ended."""
    measure_every_samples: int = 32
    """Samples between two looks at the exact objective."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        if self.seeds < 2:
            raise ConfigError(f"seeds={self.seeds} shows no spread; use 2 or more")
        provenance = Provenance.take()
        announcer = Announcer(len(self.mdp_seeds) * (1 + self.seeds * len(self.workers)))
        goals, reached = [], []
        for mdp_seed in self.mdp_seeds:
            announcer.begin(f"MDP {mdp_seed}, a long run of one worker")
            goals.append(self._goal(mdp_seed))
            announcer.end(f"its objective is {goals[-1].pilot:.3f}, the target {goals[-1].objective:.3f}")
            for seed in range(1, self.seeds + 1):
                for workers in self.workers:
                    announcer.begin(f"MDP {mdp_seed}, {workers} workers, seed {seed}")
                    reached.append(self._reach(goals[-1], workers, seed))
                    announcer.end(f"{reached[-1].samples} samples{'' if reached[-1].is_reached else ', not reached'}")
        publish(self._record(provenance, goals, reached), self.output)
        return 0

    def config(self, mdp_seed: int, workers: int, seed: int, run_dir: Path | None = None) -> Config:
        algorithm = MeasuredA3CTD0.Settings(
            actor_step_size=ACTOR_STEP_SIZE,
            critic_step_size=CRITIC_STEP_SIZE,
            discount=DISCOUNT,
            mdp_seed=mdp_seed,
            measure_every_steps=self.measure_every_samples,
        )
        experiment = Experiment(
            "htsrl/RandomMdp-v0",
            {"discount": DISCOUNT, "mdp_seed": mdp_seed},
            imports=("htsrl.systems.a3c_td0",),
            algorithm=algorithm,
            network=Network(hidden_sizes=()),
            lag=self.lag,
            num_envs=workers,
            total_steps=self.max_samples,
            seed=seed,
        )
        placement = Placement("inline", tensorboard=False, timeline=False, progress="off", run_dir=run_dir)
        return Config(experiment, placement)

    def _goal(self, mdp_seed: int) -> Goal:
        mdp = random_mdp(discount=DISCOUNT, seed=mdp_seed)
        chance = mdp.objective(mdp.policy(np.zeros_like(mdp.rewards_SA)))
        pilot = self._trained(self.config(mdp_seed, 1, PILOT_SEED), math.inf)[1].objective
        return Goal(mdp_seed, chance, pilot, mdp.best_objective(), self.share)

    def _reach(self, goal: Goal, workers: int, seed: int) -> Reached:
        steps, observer = self._trained(self.config(goal.mdp_seed, workers, seed), goal.objective)
        samples = steps if observer.samples is None else observer.samples
        return Reached(goal.mdp_seed, workers, seed, samples, observer.samples is not None)

    def _trained(self, config: Config, goal: float) -> tuple[int, UntilReached]:
        observer = UntilReached(goal)
        with TemporaryDirectory(prefix="htsrl-bench-") as folder:
            placement = replace(config.placement, run_dir=Path(folder) / "run")
            result = train(replace(config, placement=placement), observers=[observer])
        return result.steps, observer

    def _record(self, provenance: Provenance, goals: Sequence[Goal], reached: Sequence[Reached]) -> Record:
        words = ["python", "-m", "htsrl_bench.systems.a3c_td0", *flags(self, A3CTD0Experiment(), leave_out=("output",))]
        relative = {workers: relative_samples(reached, workers, min(self.workers)) for workers in self.workers}
        few, many = min(self.workers), max(self.workers)
        headline = f"A3C-TD(0), {len(goals)} random MDPs: samples to the target, {many} workers over {few}"
        return Record(
            name="system-a3c-td0",
            command=shlex.join(words),
            provenance=provenance,
            configs={f"{workers} workers": self.config(self.mdp_seeds[0], workers, 1) for workers in self.workers},
            repetitions=[asdict(run) for run in reached],
            summary={
                "goals": [{**asdict(goal), "objective": goal.objective} for goal in goals],
                "relative_samples": {str(workers): asdict(interval) for workers, interval in relative.items()},
                "highlights": {headline: _shown(relative[many])},
            },
            tables=[self._table(reached, relative), self._table_of_mdps(goals, reached)],
        )

    def _table(self, reached: Sequence[Reached], relative: Mapping[int, Interval]) -> Table:
        rows = []
        for workers, interval in relative.items():
            own = [run for run in reached if run.workers == workers]
            of_one = "-" if workers == min(self.workers) else _shown(interval)
            fewer = workers / (min(self.workers) * interval.mean)
            delay = workers * (self.lag + 1) - 1
            num_reached = f"{sum(run.is_reached for run in own)} of {len(own)}"
            rows.append([f"{workers}", num_reached, of_one, f"{fewer:.1f}x", f"{delay}"])
        headings = ["workers N", "reached", f"samples in all, over those of {min(self.workers)}"]
        note = (
            f"Samples until the exact objective first lay {self.share:.0%} of the way from chance to where a run of "
            f"one worker with {self.max_samples:,} samples ended (on each MDP its own, with a seed of its own); looked "
            f"at every {self.measure_every_samples} samples. Ratios: geometric mean over {self.seeds} seeds on each of "
            f"{len(self.mdp_seeds)} MDPs, with its 95 % interval (Student's t on the logarithms of pairs with the same "
            "seed and MDP). A run that did not come there counts with its last sample. Linear speed-up is a ratio of 1 "
            "for any N: each worker then makes 1/N of the steps. The delay is in updates."
        )
        return Table([*headings, "fewer steps of each worker", "delay at most"], rows, [note])

    def _table_of_mdps(self, goals: Sequence[Goal], reached: Sequence[Reached]) -> Table:
        rows = []
        for goal in goals:
            samples = [
                np.mean([run.samples for run in reached if (run.mdp_seed, run.workers) == (goal.mdp_seed, workers)])
                for workers in self.workers
            ]
            objectives = [goal.chance, goal.objective, goal.pilot, goal.best]
            rows.append([f"{goal.mdp_seed}", *(f"{x:.3f}" for x in objectives), *(f"{mean:,.0f}" for mean in samples)])
        headings = ["MDP", "chance", "target", "long run", "best linear", *(f"N={workers}" for workers in self.workers)]
        return Table(headings, rows, ["The objectives of each MDP, and the mean number of samples to its target."])


def relative_samples(reached: Sequence[Reached], workers: int, few: int) -> Interval:
    """Over those of `few` workers with the same seed on the same MDP: geometric mean and interval."""
    samples = {(run.mdp_seed, run.seed, run.workers): run.samples for run in reached}
    pairs = sorted({(run.mdp_seed, run.seed) for run in reached})
    interval = mean_interval([math.log(samples[*pair, workers] / samples[*pair, few]) for pair in pairs])
    assert interval is not None, "there are two seeds or more"
    return Interval(math.exp(interval.mean), math.exp(interval.low), math.exp(interval.high), interval.num_seeds)


def _shown(interval: Interval) -> str:
    return f"{interval.mean:.2f}x ({interval.low:.2f} to {interval.high:.2f})"


if __name__ == "__main__":
    sys.exit(tyro.cli(A3CTD0Experiment).run())
