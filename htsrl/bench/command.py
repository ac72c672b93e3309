"""`htsrl bench`: a subcommand for every table."""

from __future__ import annotations

import re
import shlex
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from htsrl.bench import atari_step, chaos, costs, keeping, learning, memory, restart, runs, sleeping
from htsrl.bench.announcer import Announcer
from htsrl.bench.claims import StepTime
from htsrl.bench.command_line import bench_command
from htsrl.bench.curves import draw_curves, draw_runs
from htsrl.bench.peers.command import PeersTable
from htsrl.bench.provenance import Provenance
from htsrl.bench.record import Record, publish
from htsrl.bench.tasks import SCHEDULES, TASKS, Task
from htsrl.config import Config, Placement
from htsrl.errors import ConfigError


@dataclass(frozen=True)
class SleepingTable:
    """HTS against a barrier at every step, with environments that sleep, and Claim 1's bound."""

    seconds_per_run: float = 8.0
    """About how long each run is measured."""
    repetitions: int = 3
    """Runs of each kind, with seeds 1, 2, 3 ...; the kinds take turns."""
    num_envs: int = 16
    """Environments, each with an executor of its own."""
    intervals: tuple[int, ...] = (20, 128)
    """Sync intervals alpha, a row each."""
    mean_seconds: float = 0.005
    """How long a step sleeps on average."""
    law: Literal["exponential", "gamma"] = "exponential"
    """How the length of a step is distributed."""
    cv: float = 0.25
    """The gamma law's standard deviation over its mean."""
    algo: Literal["a2c", "ppo"] = "a2c"
    """What learns from the steps."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        bench = sleeping.SleepingBench(
            num_envs=self.num_envs,
            step_time=StepTime(self.mean_seconds, cv=1.0 if self.law == "exponential" else self.cv),
            law=self.law,
            algo=self.algo,
            intervals=self.intervals,
            seconds_per_run=self.seconds_per_run,
            repetitions=self.repetitions,
        )
        provenance = Provenance.take()
        measured = sleeping.measure(bench)
        rows = sleeping.rows(bench, measured)
        record = Record(
            name="sleeping",
            command=bench_command("sleeping", self),
            provenance=provenance,
            configs=bench.configs(),
            repetitions=[asdict(run) for run in measured],
            summary={f"alpha {row.sync_interval}": row.document() for row in rows},
            tables=[sleeping.table(bench, rows)],
        )
        publish(record, self.output)
        return 0


@dataclass(frozen=True)
class LearningTable:
    """Learning curves under hts and sync, several seeds each, with the commands that repeat them."""

    tasks: tuple[str, ...] = tuple(TASKS)
    """Which tasks."""
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    """A run of each schedule for every seed."""
    placement: Literal["inline", "processes"] = "processes"
    """Where the roles live; the results are the same."""
    output: Path = Path("benchmarks")
    """Folder for a record and a picture of each task."""

    def run(self) -> int:
        tasks = [_task(name) for name in self.tasks]
        if not tasks or not self.seeds:
            raise ConfigError("give at least one task and one seed")
        announcer = Announcer(len(tasks) * len(self.seeds) * len(SCHEDULES))
        for task in tasks:  # each is written as soon as it is done: the next may take an hour
            self._run_task(task, announcer)
        return 0

    def _run_task(self, task: Task, announcer: Announcer) -> None:
        provenance = Provenance.take()
        placement = Placement(backend=self.placement, tensorboard=False)
        learned = learning.learn(task, self.seeds, placement, announcer)
        record = Record(
            name=f"learning-{task.name}",
            command=bench_command("learning", self),
            provenance=provenance,
            configs={name: Config(task.with_seed(self.seeds[0], name), placement) for name in SCHEDULES},
            repetitions=[asdict(run) for run in learned],
            summary=learning.Verdict.of(task, learned).document(),
            tables=learning.tables(task, learned),
        )
        publish(record, self.output, lambda picture: draw_curves(task, learned, picture))


@dataclass(frozen=True)
class AtariStepTable:
    """CPU time per step of Atari: ours, Gymnasium's wrappers, ale-py's vector environment, the emulator alone."""

    games: tuple[str, ...] = ("ALE/Pong-v5", "ALE/Breakout-v5")
    """Which games, as ale-py names them."""
    steps: int = 400
    """Steps that each environment takes in each repetition."""
    repetitions: int = 25
    """How often they take turns."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        bench = atari_step.AtariStepBench(self.games, self.steps, self.repetitions)
        provenance = Provenance.take()
        measured = atari_step.measure(bench)
        versions = {**provenance.versions, **atari_step.simulator_versions()}
        record = Record(
            name="atari-step",
            command=bench_command("atari-step", self),
            provenance=replace(provenance, versions=versions),
            configs={},
            repetitions=[asdict(of) for of in measured],
            summary={of.game: of.document() for of in measured},
            tables=[atari_step.table(measured)],
        )
        publish(record, self.output)
        return 0


@dataclass(frozen=True)
class CostsTable:
    """CPU time of one step, split into simulator, inference, learning and overhead."""

    work: tuple[str, ...] = tuple(costs.WORK)
    """What is measured; leave out what needs a simulator that is not installed."""
    repetitions: int = 3
    """How often; the works take turns."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        if not self.work or self.repetitions < 1:
            raise ConfigError("give at least one work and one repetition")
        provenance = Provenance.take()
        measured = costs.measure(self.work, self.repetitions)
        summary = costs.summary(self.work, measured)
        record = Record(
            name="costs",
            command=bench_command("costs", self),
            provenance=provenance,
            configs=costs.configs(self.work),
            repetitions=[asdict(of) for of in measured],
            summary=summary,
            tables=[costs.table(summary)],
        )
        publish(record, self.output)
        return 0


@dataclass(frozen=True)
class ChaosTable:
    """The same run undisturbed and with processes killed at random: exit code 1 where a bit differs."""

    task: Literal["cartpole", "atari", "all"] = "all"
    """What is trained; atari is Pong."""
    kills: int | None = None
    """How many, which also sets the length of the run. None: 200 for cartpole, 50 for atari."""
    seed: int = 1
    """Of the killer; the run's own stays the same."""
    output: Path = Path("benchmarks")
    """Folder for a record of each task."""

    def run(self) -> int:
        tasks = [*chaos.TASKS] if self.task == "all" else [self.task]
        announcer = Announcer(2 * len(tasks))
        passed = [self._run_task(task, announcer) for task in tasks]  # all of them, even if one differs
        return 0 if all(passed) else 1

    def _run_task(self, task: str, announcer: Announcer) -> bool:
        provenance = Provenance.take()
        kills = chaos.TASKS[task].kills if self.kills is None else self.kills
        verdict = chaos.endure(task, kills, self.seed, announcer)
        record = Record(
            name=f"chaos-{task}",
            command=bench_command("chaos", self),
            provenance=provenance,
            configs={task: chaos.TASKS[task].config(kills)},
            repetitions=chaos.repetitions(verdict),
            summary=verdict.document(),
            tables=[chaos.table(verdict, self.seed)],
        )
        publish(record, self.output)
        return verdict.is_passed


@dataclass(frozen=True)
class RestartTable:
    """How long a run of Pong stands still when one of its executors is killed."""

    kills: int = 10
    """How many, one after another."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        provenance = Provenance.take()
        measured = restart.measure(self.kills)
        document = restart.summary(measured)
        record = Record(
            name="restart",
            command=bench_command("restart", self),
            provenance=provenance,
            configs={"pong": restart.config()},
            repetitions=restart.repetitions(measured),
            summary=document,
            tables=[restart.table(document, measured)],
        )
        publish(record, self.output)
        return 0


@dataclass(frozen=True)
class KeepingTable:
    """Throughput of Pong with checkpoints and workers that are started again, against a run without either."""

    seconds_per_run: float = 30.0
    """How long each run is measured, once it is under way."""
    repetitions: int = 3
    """Pairs of runs for each algorithm; they take turns."""
    checkpoint_every_seconds: float = 10.0
    """How often the one side writes a checkpoint; a run that is not told otherwise does so every 300 s."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        bench = keeping.KeepingBench(self.seconds_per_run, self.repetitions, self.checkpoint_every_seconds)
        provenance = Provenance.take()
        pairs = keeping.measure(bench)
        summary = keeping.summary(pairs)
        record = Record(
            name="keeping",
            command=bench_command("keeping", self),
            provenance=provenance,
            configs=bench.configs(),
            repetitions=keeping.repetitions(pairs),
            summary=summary,
            tables=[keeping.table(bench, summary)],
        )
        publish(record, self.output)
        return 0


@dataclass(frozen=True)
class MemoryTable:
    """Throughput of recurrent policies against that of the same policies without a memory."""

    work: tuple[str, ...] = tuple(memory.WORK)
    """What is trained."""
    repetitions: int = 3
    """How often; all kinds take turns."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        unknown = [name for name in self.work if name not in memory.WORK]
        if unknown or not self.work or self.repetitions < 1:
            raise ConfigError(f"give work among {', '.join(map(repr, memory.WORK))}, and at least one repetition")
        provenance = Provenance.take()
        measured = memory.measure(self.work, self.repetitions)
        summary = memory.summary(measured)
        record = Record(
            name="memory",
            command=bench_command("memory", self),
            provenance=provenance,
            configs=memory.configs(self.work),
            repetitions=[asdict(of) for of in measured],
            summary=summary,
            tables=[memory.table(summary)],
        )
        publish(record, self.output)
        return 0


@dataclass(frozen=True)
class RunsTable:
    """Write a record of runs that were trained before: score, curve, command and digest of each."""

    run_dirs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN_DIR")]
    """Folders of runs."""
    name: str
    """What to call the record."""
    episodes: int = 100
    """Episodes of the evaluation."""
    sampled: bool = False
    """Evaluate with sampled actions instead of the most likely ones."""
    output: Path = Path("benchmarks")
    """Folder for the record and its picture."""

    def run(self) -> int:
        if re.fullmatch(r"[A-Za-z0-9._-]+", self.name) is None:
            raise ConfigError(
                f"--name {self.name!r} becomes part of a file name; use letters, digits, '.', '_' and '-'"
            )
        recorded, configs = runs.read_runs(self.run_dirs, self.episodes, self.sampled)
        way = ["--sampled"] if self.sampled else []
        record = Record(
            name=f"runs-{self.name}",
            command=shlex.join(
                ["htsrl", "bench", "runs", "RUN_DIR...", "--name", self.name, "--episodes", str(self.episodes), *way]
            ),
            provenance=Provenance.take(),
            configs=configs,
            repetitions=[asdict(run) for run in recorded],
            summary={run.name: {"score": run.score, "training_last": run.last} for run in recorded},
            tables=runs.table(recorded, self.episodes, self.sampled),
        )
        publish(record, self.output, lambda picture: draw_runs(self.name, recorded, picture))
        return 0


@dataclass(frozen=True)
class Bench:
    """Measure, print a table and write down how it came about."""

    table: (
        Annotated[SleepingTable, tyro.conf.subcommand("sleeping")]
        | Annotated[LearningTable, tyro.conf.subcommand("learning")]
        | Annotated[AtariStepTable, tyro.conf.subcommand("atari-step")]
        | Annotated[CostsTable, tyro.conf.subcommand("costs")]
        | Annotated[ChaosTable, tyro.conf.subcommand("chaos")]
        | Annotated[RestartTable, tyro.conf.subcommand("restart")]
        | Annotated[KeepingTable, tyro.conf.subcommand("keeping")]
        | Annotated[MemoryTable, tyro.conf.subcommand("memory")]
        | Annotated[PeersTable, tyro.conf.subcommand("peers")]
        | Annotated[RunsTable, tyro.conf.subcommand("runs")]
    )

    def run(self) -> int:
        return self.table.run()


def _task(name: str) -> Task:
    if name not in TASKS:
        raise ConfigError(f"task {name!r} is not known; choose among {', '.join(TASKS)}")
    return TASKS[name]
