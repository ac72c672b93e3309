"""The experiment of offline RL at multiple frequencies (https://arxiv.org/abs/2207.13082), in small, on Pendulum.

A policy of middling skill and a random one play at control periods of 0.005, 0.01 and 0.02 seconds. CQL then learns
from all of it, with returns over a single step (naive mixing) and over equal times (adaptive n-step), and from each
period alone; every policy is evaluated at every period. As in the authors' own program minibatches have as many
transitions of each period, and naive mixing too discounts by time; `naive-one-discount` takes one gamma for steps of
every period. All that is made lies in a folder, and the same command continues where it was.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import tyro

from htsrl.algorithms.sac import SAC
from htsrl.config import Config, Experiment, Network, Placement
from htsrl.config.command_line import flags
from htsrl.datasets.dataset import Dataset
from htsrl.datasets.write import merged
from htsrl.errors import ConfigError
from htsrl.evaluate import evaluate
from htsrl.metrics.result import RunResult
from htsrl.runs.collect import Collected, collect, collect_at_random
from htsrl.statistics.intervals import mean_interval
from htsrl.systems.multi_frequency.algorithm import MultiFrequencyCQL
from htsrl.systems.multi_frequency.environments import PENDULUM_LONGEST
from htsrl.train import resume_or_start
from htsrl_bench.announcer import Announcer
from htsrl_bench.kept_datasets import KeptDatasets
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, Table, publish

ENV = "htsrl/PendulumDt-v0"
IMPORTS = ("htsrl.systems.multi_frequency",)
MIXED = "mixed"
NAIVE, ONE_DISCOUNT, ADAPTIVE = "naive", "naive-one-discount", "adaptive"
TITLES = {NAIVE: "naive mixing", ONE_DISCOUNT: "naive mixing, one discount", ADAPTIVE: "adaptive n-step"}
ONLY = "only-"


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

    methods: tuple[str, ...] = (NAIVE, ADAPTIVE, "only-0.005", "only-0.01", "only-0.02")
    """What is compared: naive, naive-one-discount, adaptive, and only-PERIOD for each of the periods."""
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
        if self.seeds < 1 or not self.methods or max(self.periods) > PENDULUM_LONGEST:
            raise ConfigError(
                f"seeds={self.seeds} and methods={self.methods} must be 1 or more, and periods at most "
                f"{PENDULUM_LONGEST}"
            )
        known = [*TITLES, *(f"{ONLY}{dt:g}" for dt in self.periods)]
        for method in self.methods:
            if method not in known:
                raise ConfigError(f"method {method!r} is not known; choose among {', '.join(known)}")
        provenance = Provenance.take()
        self.work.mkdir(parents=True, exist_ok=True)
        self._make_datasets()
        announcer, learned = Announcer(self.seeds * len(self.methods)), []
        for seed in range(1, self.seeds + 1):
            for method in self.methods:
                announcer.begin(f"{method}, seed {seed}")
                learned += self._learn(method, seed)
                announcer.end(", ".join(f"{of.mean_return:.1f}" for of in learned[-len(self.periods) :]))
        publish(self._record(provenance, learned), self.output)
        return 0

    @property
    def _data(self) -> KeptDatasets:
        return KeptDatasets(self.work, self.episodes)

    def _make_datasets(self) -> None:
        """Of each period, and of all of them together."""
        played, data = self._behaviour(), self._data
        of_periods = [
            data.made(f"{dt:g}", played.digest, partial(self._collect, dt, played.run_dir)) for dt in self.periods
        ]
        data.made(MIXED, played.digest, lambda: merged(of_periods))

    def _behaviour(self) -> RunResult:
        experiment = Experiment(
            ENV,
            {"reward": "dense"},
            IMPORTS,
            SAC(learning_rate=1e-3, temperature_learning_rate=1e-3, learning_starts=1000, minibatch_size=128),
            Network(hidden_sizes=(64, 64), activation="relu"),
            num_envs=2,
            total_steps=self.behaviour_steps,
        )
        return resume_or_start(Config(experiment, _quietly(self.work / "behaviour")))

    def _collect(self, dt: float, behaviour: Path) -> Dataset:
        env_args = {"dt": dt, "reward": "sparse"}
        skilled = Collected(self.episodes, seed=1, sampled=True, env_args=env_args)
        at_random = Collected(self.episodes, seed=2, env_args=env_args)
        return merged([collect(behaviour, skilled, trust=True), collect_at_random(ENV, at_random, imports=IMPORTS)])

    def config(self, method: str, seed: int) -> Config:
        settings = MultiFrequencyCQL.Settings(
            minibatch_size=self.minibatch_size,
            sampled_actions=self.sampled_actions,
            adaptive_n=method == ADAPTIVE,
            scaled_discount=method != ONE_DISCOUNT,
            even_periods=True,
            longest_dt=max(self.periods),
        )
        source = self._data.folder(method.removeprefix(ONLY) if method.startswith(ONLY) else MIXED)
        experiment = Experiment(
            ENV,
            imports=IMPORTS,
            algorithm=settings,
            network=Network(hidden_sizes=self.hidden_sizes, activation="relu"),
            source=str(source),
            total_steps=self.gradient_steps,
            seed=seed,
        )
        return Config(experiment, _quietly(self.work / f"{method}-seed-{seed}"))

    def _learn(self, method: str, seed: int) -> list[Learned]:
        config = self.config(method, seed)
        result = resume_or_start(config)
        found = []
        for dt in self.periods:
            evaluation = evaluate(result.run_dir, self.eval_episodes, seed=7, env_args={"dt": dt}, trust=True)
            found.append(Learned(method, seed, dt, evaluation.mean_return))
        return found

    def _record(self, provenance: Provenance, learned: Sequence[Learned]) -> Record:
        means = {method: _mean_over_periods(learned, method) for method in self.methods}
        words = ["python", "-m", "htsrl_bench.systems.multi_frequency"]
        return Record(
            name="system-multi-frequency",
            command=shlex.join([*words, *flags(self, MultiFrequencyExperiment(), leave_out=("output", "work"))]),
            provenance=provenance,
            configs={method: self.config(method, seed=1) for method in self.methods},
            repetitions=[asdict(of) for of in learned],
            summary={
                "means": means,
                "highlights": {
                    f"offline RL at several control periods, {self.seeds} seeds: return of {_title(method)}": (
                        f"{mean:.1f}"
                    )
                    for method, mean in means.items()
                },
            },
            tables=[self._table(learned)],
        )

    def _table(self, learned: Sequence[Learned]) -> Table:
        of_data = {dt: self._data.open(f"{dt:g}").returns() for dt in self.periods}
        rows = [["in the data (mean, best)", *(f"{of.mean():.1f}, {of.max():.1f}" for of in of_data.values()), ""]]
        for method in self.methods:
            cells = [
                _shown([of.mean_return for of in learned if (of.method, of.dt) == (method, dt)]) for dt in self.periods
            ]
            rows.append([_title(method), *cells, f"{_mean_over_periods(learned, method):.1f}"])
        note = (
            f"Mean return of {self.eval_episodes} episodes of the most likely actions: one point for each 0.02 s that "
            f"the pendulum is upright, of 400 in all. Mean over {self.seeds} seeds, with the 95 % interval (Student's "
            f"t) where there are several. Data: {self.episodes} episodes of a SAC policy after "
            f"{self.behaviour_steps:,} steps and as many of random actions, for each period. Every run takes "
            f"{self.gradient_steps:,} gradient steps on minibatches with as many transitions of each period, and "
            f"discounts by gamma^(dt / {max(self.periods):g} s) unless it has one discount."
        )
        return Table(["learned from", *(f"played at {dt:g} s" for dt in self.periods), "mean"], rows, [note])


def _title(method: str) -> str:
    return TITLES.get(method) or f"only {method.removeprefix(ONLY)} s"


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
