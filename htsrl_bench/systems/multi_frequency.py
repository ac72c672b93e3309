"""The experiment of offline RL at multiple frequencies (https://arxiv.org/abs/2207.13082), in small, on Pendulum.

A policy of middling skill and a random one play at control periods of 0.005, 0.01 and 0.02 seconds. CQL then learns
from all of it, with returns over a single step (naive mixing) and over equal times (adaptive n-step), and from each
period alone; every policy is evaluated at every period. All that is made lies in a folder, and the same command
continues where it was.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from htsrl.algorithms.sac import SAC
from htsrl.config import Config, Experiment, Network, Placement
from htsrl.config.command_line import flags
from htsrl.datasets.dataset import Dataset
from htsrl.datasets.open import open_dataset
from htsrl.datasets.write import merged, write_dataset
from htsrl.errors import ConfigError
from htsrl.evaluate import evaluate
from htsrl.runs.collect import Collected, collect, collect_at_random
from htsrl.statistics.intervals import mean_interval
from htsrl.systems.multi_frequency.algorithm import MultiFrequencyCQL
from htsrl.systems.multi_frequency.environments import PENDULUM_LONGEST
from htsrl.train import resume_or_start
from htsrl_bench.announcer import Announcer
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, Table, publish

ENV = "htsrl/PendulumDt-v0"
IMPORTS = ("htsrl.systems.multi_frequency",)
MIXED = "mixed"
NAIVE, ADAPTIVE = "naive mixing", "adaptive n-step"


@dataclass(frozen=True)
class Learned:
    """A policy's mean return at one control period."""

    method: str
    seed: int
    dt: float
    mean_return: float


@dataclass(frozen=True)
class MultiFrequencyExperiment:
    """Returns of CQL from Pendulum data of mixed control periods, with and without adaptive n-step returns."""

    seeds: int = 5
    """Runs of each method."""
    periods: tuple[float, ...] = (0.005, 0.01, 0.02)
    """Control periods, in seconds."""
    behaviour_steps: int = 20_000
    """Steps of SAC, at the longest period, before its policy plays for the dataset."""
    episodes: int = 20
    """Episodes in the dataset for each period and each of the two policies."""
    gradient_steps: int = 100_000
    """Of every run."""
    minibatch_size: int = 256
    """Transitions that a gradient is taken of."""
    sampled_actions: int = 10
    """Of each kind that CQL's excess is estimated from."""
    hidden_sizes: tuple[int, ...] = (256, 256)
    """Of policy and critics."""
    eval_episodes: int = 20
    """Of each policy at each period."""
    work: Path = Path("runs/multi-frequency")
    """Folder for datasets and runs; what is there already is not made again."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        if self.seeds < 1 or max(self.periods) > PENDULUM_LONGEST:
            raise ConfigError(f"seeds={self.seeds} must be 1 or more, and periods at most {PENDULUM_LONGEST}")
        provenance = Provenance.take()
        self.work.mkdir(parents=True, exist_ok=True)
        self._make_datasets()
        announcer, learned = Announcer(self.seeds * len(self.methods())), []
        for seed in range(1, self.seeds + 1):
            for method in self.methods():
                announcer.begin(f"{method}, seed {seed}")
                learned += self._learn(method, seed)
                announcer.end(", ".join(f"{of.mean_return:.1f}" for of in learned[-len(self.periods) :]))
        publish(self._record(provenance, learned), self.output)
        return 0

    def methods(self) -> list[str]:
        return [NAIVE, ADAPTIVE, *(_single(dt) for dt in self.periods)]

    def _make_datasets(self) -> None:
        """Of each period, and of all of them together."""
        self._behaviour()
        of_periods = [self._dataset(f"{dt:g}", lambda dt=dt: self._collect(dt)) for dt in self.periods]
        self._dataset(MIXED, lambda: merged(of_periods))

    def _dataset(self, name: str, make: Any) -> Dataset:
        folder = self._data(name)
        if not folder.exists():
            write_dataset(make(), folder)
        return open_dataset(str(folder))

    def _data(self, name: str) -> Path:
        return self.work / f"data-{name}"

    def _behaviour(self) -> Path:
        run_dir = self.work / "behaviour"
        experiment = Experiment(
            ENV,
            {"reward": "dense"},
            IMPORTS,
            SAC(learning_rate=1e-3, temperature_learning_rate=1e-3, learning_starts=1000, minibatch_size=128),
            Network(hidden_sizes=(64, 64), activation="relu"),
            num_envs=2,
            total_steps=self.behaviour_steps,
        )
        resume_or_start(Config(experiment, _quietly(run_dir)))
        return run_dir

    def _collect(self, dt: float) -> Dataset:
        env_args = {"dt": dt, "reward": "sparse"}
        skilled = Collected(self.episodes, seed=1, sampled=True, env_args=env_args)
        at_random = Collected(self.episodes, seed=2, env_args=env_args)
        return merged(
            [collect(self._behaviour(), skilled, trust=True), collect_at_random(ENV, at_random, imports=IMPORTS)]
        )

    def config(self, method: str, seed: int) -> Config:
        single = method not in (NAIVE, ADAPTIVE)
        settings = MultiFrequencyCQL.Settings(
            minibatch_size=self.minibatch_size,
            sampled_actions=self.sampled_actions,
            adaptive_n=method == ADAPTIVE,
            longest_dt=max(self.periods),
        )
        source = self._data(method.removeprefix("only ").removesuffix(" s") if single else MIXED)
        experiment = Experiment(
            ENV,
            imports=IMPORTS,
            algorithm=settings,
            network=Network(hidden_sizes=self.hidden_sizes, activation="relu"),
            source=str(source),
            total_steps=self.gradient_steps,
            seed=seed,
        )
        return Config(experiment, _quietly(self.work / f"{method.replace(' ', '-')}-seed-{seed}"))

    def _learn(self, method: str, seed: int) -> list[Learned]:
        config = self.config(method, seed)
        result = resume_or_start(config)
        found = []
        for dt in self.periods:
            evaluation = evaluate(result.run_dir, self.eval_episodes, seed=7, env_args={"dt": dt}, trust=True)
            found.append(Learned(method, seed, dt, evaluation.mean_return))
        return found

    def _record(self, provenance: Provenance, learned: Sequence[Learned]) -> Record:
        means = {method: _mean_over_periods(learned, method) for method in (NAIVE, ADAPTIVE)}
        words = ["python", "-m", "htsrl_bench.systems.multi_frequency"]
        return Record(
            name="system-multi-frequency",
            command=shlex.join([*words, *flags(self, MultiFrequencyExperiment(), leave_out=("output", "work"))]),
            provenance=provenance,
            configs={method: self.config(method, seed=1) for method in self.methods()},
            repetitions=[asdict(of) for of in learned],
            summary={
                "means": means,
                "ratio": means[ADAPTIVE] / means[NAIVE] if means[NAIVE] else None,
                "highlights": {
                    f"offline RL at several control periods, {self.seeds} seeds: return of {method}": f"{mean:.1f}"
                    for method, mean in means.items()
                },
            },
            tables=[self._table(learned)],
        )

    def _table(self, learned: Sequence[Learned]) -> Table:
        of_data = {dt: open_dataset(str(self._data(f"{dt:g}"))).returns() for dt in self.periods}
        rows = [["in the data (mean, best)", *(f"{of.mean():.1f}, {of.max():.1f}" for of in of_data.values()), ""]]
        for method in self.methods():
            cells = [
                _shown([of.mean_return for of in learned if (of.method, of.dt) == (method, dt)]) for dt in self.periods
            ]
            rows.append([method, *cells, f"{_mean_over_periods(learned, method):.1f}"])
        note = (
            f"Mean return of {self.eval_episodes} episodes of the most likely actions: one point for each 0.02 s that "
            f"the pendulum is upright, of 400 in all. Mean over {self.seeds} seeds, with the 95 % interval (Student's "
            f"t) where there are several. Data: {self.episodes} episodes of a SAC policy after "
            f"{self.behaviour_steps:,} steps and as many of random actions, for each period. Every run takes "
            f"{self.gradient_steps:,} gradient steps, and discounts by gamma^(dt / {max(self.periods):g} s)."
        )
        return Table(["learned from", *(f"played at {dt:g} s" for dt in self.periods), "mean"], rows, [note])


def _single(dt: float) -> str:
    return f"only {dt:g} s"


def _quietly(run_dir: Path) -> Placement:
    return Placement("inline", tensorboard=False, progress="off", run_dir=run_dir)


def _mean_over_periods(learned: Sequence[Learned], method: str) -> float:
    return float(np.mean([of.mean_return for of in learned if of.method == method]))


def _shown(returns: Sequence[float]) -> str:
    interval = mean_interval(returns) if len(returns) > 1 else None
    return (
        f"{returns[0]:.1f}" if interval is None else f"{interval.mean:.1f} ({interval.low:.1f} to {interval.high:.1f})"
    )


if __name__ == "__main__":
    sys.exit(tyro.cli(MultiFrequencyExperiment).run())
