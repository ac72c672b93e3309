"""The sync rules in ordinary runs: PPO with several learners on a small task, with controls at the same budget."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import tyro

from htsrl.algorithms.ppo import PPO
from htsrl.config import Config, Experiment, Placement
from htsrl.config.command_line import flags
from htsrl.config.file import to_json
from htsrl.config.presets import preset
from htsrl.errors import ConfigError
from htsrl.metrics.sinks import read_json_lines
from htsrl.statistics.intervals import Interval, mean_interval
from htsrl.train import train
from htsrl_bench.announcer import Announcer
from htsrl_bench.provenance import Provenance, current_commit
from htsrl_bench.record import Record, Table, publish, write_whole
from htsrl_bench.systems.planned_rounds import PLANNED, controls_of
from htsrl_bench.systems.sync_rule_plots import drawing

Task = Literal["cartpole", "halfcheetah"]
TASKS: Mapping[Task, Experiment] = {
    "cartpole": Experiment(
        "CartPole-v1",
        algorithm=PPO(epochs=4, num_minibatches=4, learning_rate=1e-3),
        num_envs=16,
        sync_interval=32,
        total_steps=51_200,
    ),
    "halfcheetah": replace(
        preset("HalfCheetah-v5", "ppo"),
        algorithm=PPO(epochs=5, num_minibatches=8, learning_rate=1e-3, normalize_rewards=True),
        sync_interval=64,
        total_steps=102_400,
    ),
}
EVERY = "every"
WAYS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    EVERY: ("every", {}),
    "fixed, H = 1": ("fixed", {"local_updates": 1}),
    "fixed, H = 10": ("fixed", {"local_updates": 10}),
    "qsr, base 2": ("qsr", {"base_updates": 2}),
    "selsync, delta 0.1, window 5": ("selsync", {"delta": 0.1, "window": 5}),
    "sync_switch": ("sync_switch", {}),
    "never, but at the end": ("fixed", {"local_updates": 1_000_000}),
}
CONTROLLED = ("qsr, base 2", "selsync, delta 0.1, window 5")
"""Those whose number of rounds follows from what they see."""
MAX_POINTS = 40
"""Of a run's curve in a record."""


@dataclass(frozen=True)
class Run:
    """What one came to."""

    way: str
    seed: int
    mean_return: float
    """Over the whole run: of `rollout/ep_rew_mean`, from update to update."""
    last_return: float
    rounds: int
    bytes: int
    curve: Sequence[tuple[int, float, int]]
    """Steps, return and rounds so far, at some of the updates."""
    commit: str | None


@dataclass(frozen=True)
class SyncRuleRuns:
    """Return and communication of PPO under each sync rule, with controls."""

    task: Task = "cartpole"
    """What is learned."""
    seeds: int = 5
    """Runs with each rule, the same seeds for all."""
    first_seed: int = 1
    """They are this one and those after it."""
    learners: int = 4
    """Replicas."""
    total_steps: int | None = None
    """Of all replicas together. None: 51,200 for cartpole, 102,400 for halfcheetah."""
    finished_runs: Path | None = None
    """Folder that keeps every finished run, so that what was interrupted continues where it was."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        if self.seeds < 2:
            raise ConfigError(f"seeds={self.seeds} shows no spread; use 2 or more")
        provenance, announcer = Provenance.take(), Announcer(self.seeds * (len(WAYS) + 2 * len(CONTROLLED)))
        runs = [
            run
            for seed in range(self.first_seed, self.first_seed + self.seeds)
            for run in self.runs_of(seed, announcer)
        ]
        record = self._record(provenance, runs)
        curves = {way: [run.curve for run in runs if run.way == way] for way in dict.fromkeys(run.way for run in runs)}
        publish(record, self.output, drawing(record.name, curves, [way for way in curves if way not in WAYS]))
        return 0

    def runs_of(self, seed: int, announcer: Announcer) -> list[Run]:
        runs: list[Run] = []
        for way, (rule, args) in WAYS.items():
            runs.append(self._train(way, rule, args, seed, announcer))
            if way in CONTROLLED:
                for control, planned in controls_of(way, runs[-1].rounds, seed).items():
                    runs.append(self._train(control, PLANNED, asdict(planned), seed, announcer))
        return runs

    def config(self, rule: str, args: Mapping[str, Any], seed: int, run_dir: Path | None = None) -> Config:
        task = TASKS[self.task]
        experiment = replace(
            task,
            learners=self.learners,
            sync_rule=rule,
            sync_args=args,
            total_steps=self.total_steps or task.total_steps,
            seed=seed,
        )
        quietly = Placement(
            "inline", tensorboard=False, progress="off", timeline=False, check_env=False, run_dir=run_dir
        )
        return Config(experiment, quietly)

    def _train(self, way: str, rule: str, args: Mapping[str, Any], seed: int, announcer: Announcer) -> Run:
        announcer.begin(f"{way}, seed {seed}")
        config = self.config(rule, args, seed)
        if (run := self._find(way, config)) is None:
            with TemporaryDirectory(prefix="htsrl-bench-") as folder:
                train(self.config(rule, args, seed, Path(folder) / "run"), log_every_steps=1)
                run = _run_of(way, seed, read_json_lines(Path(folder) / "run" / "metrics.jsonl"))
            self._keep(config, run)
        announcer.end(f"return {run.mean_return:.1f} over the run, {run.rounds} rounds")
        return run

    def _find(self, way: str, config: Config) -> Run | None:
        path = self._kept(way, config.experiment.seed)
        if path is None or not path.exists():
            return None
        document = json.loads(path.read_text())
        # Not the placement, which changes no result, and to which every version adds.
        if document["config"]["experiment"] != json.loads(to_json(config))["experiment"]:
            raise ConfigError(f"{path} holds a run with other settings; choose another folder for finished_runs")
        return Run(**document["run"])

    def _keep(self, config: Config, run: Run) -> None:
        if (path := self._kept(run.way, run.seed)) is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps({"config": json.loads(to_json(config)), "run": asdict(run)}))

    def _kept(self, way: str, seed: int) -> Path | None:
        name = re.sub(r"\W+", "-", f"{self.task} {way} {seed}")
        return None if self.finished_runs is None else self.finished_runs / f"{name}.json"

    def _record(self, provenance: Provenance, runs: Sequence[Run]) -> Record:
        ways = list(dict.fromkeys(run.way for run in runs))
        less = {way: _less_every(runs, way) for way in ways}
        words = ["python", "-m", "htsrl_bench.systems.sync_rule_runs"]
        words += flags(self, SyncRuleRuns(), leave_out=("output", "finished_runs"))
        return Record(
            name=f"sync-rules-{self.task}",
            command=shlex.join(words),
            provenance=provenance,
            configs={way: self.config(rule, args, seed=1) for way, (rule, args) in WAYS.items()},
            repetitions=[asdict(run) for run in runs],
            summary={
                "return_less_every": {way: asdict(interval) for way, interval in less.items()},
                "highlights": self._highlights(less),
            },
            tables=[self._table(runs, ways, less)],
        )

    def _highlights(self, less: Mapping[str, Interval]) -> dict[str, str]:
        what = f"sync rules on {self.task}, {self.seeds} seeds: return over the run, less that of every"
        return {what: ", ".join(f"{way} {less[way].mean:+.1f}" for way in WAYS if way != EVERY)}

    def _table(self, runs: Sequence[Run], ways: Sequence[str], less: Mapping[str, Interval]) -> Table:
        rows = []
        for way in ways:
            own, difference = [run for run in runs if run.way == way], less[way]
            shown = f"{difference.mean:+.1f} ({difference.low:+.1f} to {difference.high:+.1f})"
            means = [np.mean([getattr(run, name) for run in own]) for name in ("rounds", "mean_return", "last_return")]
            kilobytes = np.mean([run.bytes for run in own]) / 1000
            cells = [f"{means[0]:.1f}", f"{kilobytes:,.0f}", f"{means[1]:.1f}", f"{means[2]:.1f}"]
            rows.append([way, *cells, "-" if way == EVERY else shown])
        headings = ["rule", "rounds", "kB sent", "return over the run", "in the end", "over the run less that of every"]
        experiment = self.config(EVERY, {}, 1).experiment
        algorithm = experiment.algorithm
        assert isinstance(algorithm, PPO)
        note = (
            f"{experiment.env}, PPO ({algorithm.epochs} epochs, {algorithm.num_minibatches} minibatches, learning rate "
            f"{algorithm.learning_rate:g} annealed), {self.learners} learners, {experiment.num_envs} environments in "
            f"all, {experiment.sync_interval} steps an interval, {experiment.total_steps:,} steps, hts. Returns are "
            f"means over the last 100 episodes of training. Means over {self.seeds} seeds; differences with their 95 % "
            "intervals (Student's t over paired seeds). A round of `every` is an optimizer step."
        )
        return Table(headings, rows, [note])


def _run_of(way: str, seed: int, lines: Sequence[Mapping[str, float | None]]) -> Run:
    points = [
        (int(line["step"] or 0), float(f"{mean:.5g}"), int(line["sync/rounds"] or 0))
        for line in lines
        if (mean := line.get("rollout/ep_rew_mean")) is not None
    ]
    rounds, num_bytes = (int(lines[-1][name] or 0) for name in ("sync/rounds", "sync/bytes"))
    mean_return = float(np.mean([mean for _, mean, _ in points]))
    stride = -(-len(points) // MAX_POINTS)
    curve = [*points[:-1:stride], points[-1]]
    return Run(way, seed, mean_return, points[-1][1], rounds, num_bytes, curve, current_commit())


def _less_every(runs: Sequence[Run], way: str) -> Interval:
    returns = {(run.way, run.seed): run.mean_return for run in runs}
    seeds = sorted({run.seed for run in runs})
    interval = mean_interval([returns[way, seed] - returns[EVERY, seed] for seed in seeds])
    assert interval is not None, "there are two seeds or more"
    return interval


if __name__ == "__main__":
    sys.exit(tyro.cli(SyncRuleRuns).run())
