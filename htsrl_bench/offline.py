"""What is learned from a dataset: behaviour cloning, CQL and IQL on episodes of a policy and of random actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from htsrl.algorithms.bc import BC
from htsrl.algorithms.cql import CQL
from htsrl.algorithms.iql import IQL
from htsrl.algorithms.sac import SAC
from htsrl.config import Config, Experiment, Network, Placement
from htsrl.datasets.dataset import Dataset
from htsrl.datasets.write import merged
from htsrl.errors import ConfigError
from htsrl.evaluate import evaluate
from htsrl.runs.collect import Collected, collect, collect_at_random
from htsrl.statistics.intervals import mean_interval
from htsrl.train import resume_or_start
from htsrl_bench.announcer import Announcer
from htsrl_bench.kept_datasets import KeptDatasets
from htsrl_bench.record import Table

ENV = "Pendulum-v1"
ALGORITHMS: Mapping[str, type] = {"bc": BC, "cql": CQL, "iql": IQL}
DATASETS = ("policy", "random", "mixed")
BEHAVIOUR = SAC(learning_rate=1e-3, temperature_learning_rate=1e-3, learning_starts=500, minibatch_size=128)


@dataclass(frozen=True)
class Learned:
    """A policy's mean return."""

    algorithm: str
    dataset: str
    seed: int
    mean_return: float
    digest: str


@dataclass(frozen=True)
class OfflineBench:
    """The settings of all runs, and the folder in which they are kept."""

    algorithms: tuple[str, ...]
    seeds: int
    behaviour_steps: int
    episodes: int
    gradient_steps: int
    work: Path

    def __post_init__(self) -> None:
        if min(self.seeds, self.episodes) < 1:
            raise ConfigError(f"seeds={self.seeds} and episodes={self.episodes} must be at least 1")
        for name in self.algorithms:
            if name not in ALGORITHMS:
                raise ConfigError(f"algorithm {name!r} is not known; choose among {', '.join(ALGORITHMS)}")

    def learn(self) -> list[Learned]:
        """Whatever is in the folder already is not made again."""
        self.work.mkdir(parents=True, exist_ok=True)
        self._make_datasets()
        announcer, learned = Announcer(self.seeds * len(self.algorithms) * len(DATASETS)), []
        for seed in range(1, self.seeds + 1):
            for dataset in DATASETS:
                for algorithm in self.algorithms:
                    announcer.begin(f"{algorithm} from {dataset}, seed {seed}")
                    learned.append(self._learn_once(algorithm, dataset, seed))
                    announcer.end(f"{learned[-1].mean_return:.1f}")
        return learned

    def _learn_once(self, algorithm: str, dataset: str, seed: int) -> Learned:
        result = resume_or_start(self.config(algorithm, dataset, seed))
        evaluation = evaluate(result.run_dir, self.episodes, seed=7, trust=True)
        return Learned(algorithm, dataset, seed, evaluation.mean_return, result.digest)

    def config(self, algorithm: str, dataset: str, seed: int) -> Config:
        experiment = Experiment(
            ENV,
            algorithm=ALGORITHMS[algorithm](),
            network=Network(hidden_sizes=(64, 64), activation="relu"),
            source=str(self._data.folder(dataset)),
            total_steps=self.gradient_steps,
            seed=seed,
        )
        return Config(experiment, _quietly(self.work / f"{algorithm}-{dataset}-seed-{seed}"))

    def dataset(self, name: str) -> Dataset:
        return self._data.open(name)

    @property
    def _data(self) -> KeptDatasets:
        return KeptDatasets(self.work, self.episodes)

    def _make_datasets(self) -> None:
        network = Network(hidden_sizes=(64, 64), activation="relu")
        behaviour = Experiment(ENV, algorithm=BEHAVIOUR, network=network, num_envs=2, total_steps=self.behaviour_steps)
        played = resume_or_start(Config(behaviour, _quietly(self.work / "behaviour")))
        skilled, at_random = Collected(self.episodes, seed=1, sampled=True), Collected(self.episodes, seed=2)
        parts = [
            self._data.made("policy", played.digest, lambda: collect(played.run_dir, skilled, trust=True)),
            self._data.made("random", played.digest, lambda: collect_at_random(ENV, at_random)),
        ]
        self._data.made("mixed", played.digest, lambda: merged(parts))


def table(bench: OfflineBench, learned: Sequence[Learned]) -> Table:
    returns = {name: bench.dataset(name).returns() for name in DATASETS}
    rows = [["in the data (mean, best)", *(f"{of.mean():.0f}, {of.max():.0f}" for of in returns.values())]]
    rows += [[name, *(_shown(of_name(learned, name, dataset)) for dataset in DATASETS)] for name in bench.algorithms]
    note = (
        f"Mean return of {bench.episodes} episodes of {ENV}, most likely actions, after "
        f"{bench.gradient_steps:,} gradient steps with the algorithms' defaults and networks of 64 and 64. Mean over "
        f"{bench.seeds} seeds, with the 95 % interval (Student's t) where there are several. Data: {bench.episodes} "
        f"episodes, actions sampled, of one SAC policy after {bench.behaviour_steps:,} steps; as many of random "
        "actions; both together."
    )
    return Table(["", *(f"learned from {name}" for name in DATASETS)], rows, [note])


def highlights(bench: OfflineBench, learned: Sequence[Learned]) -> dict[str, str]:
    """For each dataset, what every algorithm made of it, and what is in it."""
    found = {}
    for dataset in DATASETS:
        means = ", ".join(f"{name} {np.mean(of_name(learned, name, dataset)):.0f}" for name in bench.algorithms)
        in_data = f"in the data {bench.dataset(dataset).returns().mean():.0f}"
        found[f"{ENV} offline, {dataset} data, {bench.seeds} seeds: return"] = f"{means}; {in_data}"
    return found


def of_name(learned: Sequence[Learned], algorithm: str, dataset: str) -> list[float]:
    return [run.mean_return for run in learned if (run.algorithm, run.dataset) == (algorithm, dataset)]


def _shown(returns: Sequence[float]) -> str:
    interval = mean_interval(returns)
    mean = f"{np.mean(returns):.0f}"
    return mean if interval is None else f"{mean} ({interval.low:.0f} to {interval.high:.0f})"


def _quietly(run_dir: Path) -> Placement:
    return Placement("inline", tensorboard=False, progress="off", run_dir=run_dir)
