"""How long an update on text takes: in turn, side by side, on both cores in turn, and in TRL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from htsrl.config import Config, Placement
from htsrl.config.file import to_json
from htsrl.errors import HtsrlError
from htsrl.metrics.sinks import read_json_lines
from htsrl_bench.announcer import Announcer
from htsrl_bench.peers.frameworks import SCRIPTS, Peer
from htsrl_bench.process_tree import memory_of, tree_of

WAYS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "in turn": ({"schedule": "sync"}, {"num_executors": 1}),
    "side by side": ({}, {"num_executors": 1}),
    "in turn, two of each": ({"schedule": "sync", "gradient_shards": 2}, {"num_executors": 2, "learner_workers": 2}),
}
"""By name, what they change of the experiment and of the placement."""
TRL = "TRL"
TRL_PEER = Peer(
    TRL,
    "peer.trl_grpo",
    SCRIPTS / "requirements" / "trl.txt",
    variants=("grpo",),
    packages=("trl", "transformers", "torch"),
)
LOOK_SECONDS = 1.0
PATIENCE_SECONDS = 400.0


@dataclass(frozen=True)
class TextWork:
    """The same for all ways."""

    name: str
    model: Path
    prompts: Path
    reward: str
    batch: int
    completion_tokens: int
    updates: int
    """That are measured."""
    algorithm: str = "grpo"
    num_generations: int = 2
    learning_rate: float = 1e-5
    beta: float = 0.04
    skipped: int = 3
    """Updates before the clock starts."""
    last: int = 2
    """Updates that nothing is generated beside, when a run ends."""

    @property
    def all_updates(self) -> int:
        return self.skipped + self.updates + self.last

    def config(self, way: str, minibatches: int = 1) -> Config:
        from htsrl.language.rlhf import rlhf_config

        experiment, placement = WAYS[way]
        return rlhf_config(
            self.model,
            self.prompts,
            self.reward,
            self.algorithm,
            Placement(backend="processes", tensorboard=False, progress="off", log_every_steps=1, **placement),
            total_episodes=self.all_updates * self.batch,
            generation_batch_size=self.batch * minibatches,
            steps_per_generation=minibatches,
            max_completion_length=self.completion_tokens,
            num_generations=self.num_generations,
            learning_rate=self.learning_rate,
            beta=self.beta,
            **experiment,
        )

    def job(self, folder: Path, minibatches: int = 1, save_steps: int = 0) -> dict[str, Any]:
        """The same for `peer.trl_grpo`."""
        return {
            "model": str(self.model.absolute()),
            "prompts": str(self.prompts.absolute()),
            "reward": self.reward,
            "batch": self.batch,
            "minibatches": minibatches,
            "num_generations": self.num_generations,
            "completion_tokens": self.completion_tokens,
            "updates": self.all_updates,
            "learning_rate": self.learning_rate,
            "beta": self.beta,
            "seed": 1,
            "save_steps": save_steps,
            "resume": None,
            **{name: str(folder / name) for name in ("output", "readings", "trained")},
        }


@dataclass(frozen=True)
class Reading:
    """How far a run was when an update was done."""

    seconds: float
    tokens: float
    """Generated so far."""
    learner_waited: float = 0.0
    generator_waited: float = 0.0


@dataclass(frozen=True)
class Measured:
    """One run."""

    work: str
    way: str
    repetition: int
    seconds: float
    """Of an update."""
    tokens_per_second: float
    megabytes: float
    """Of all processes, at most."""
    generating: float | None = None
    """Seconds of an update in which the learner waited."""
    learning: float | None = None
    """Seconds of an update in which the generator waited."""

    @property
    def bound(self) -> float | None:
        """How many times as fast the two phases could be side by side."""
        if self.generating is None or self.learning is None:
            return None
        return (self.generating + self.learning) / max(self.generating, self.learning)


@dataclass
class _Highest:
    megabytes: float = 0.0

    def look(self, pid: int) -> None:
        total = 0.0
        for process in tree_of(pid):
            try:
                total += memory_of(process).pss
            except (OSError, KeyError, ValueError):  # it has just ended
                continue
        self.megabytes = max(self.megabytes, total)


@dataclass(frozen=True)
class TextSpeed:
    """What is measured, how often, and where TRL is."""

    works: Sequence[TextWork]
    repetitions: int
    trl_python: Path | None
    measured: list[Measured] = field(default_factory=list)

    def measure(self) -> list[Measured]:
        """All ways take turns within a work, the works within a repetition."""
        ways = [*WAYS, *([TRL] if self.trl_python else [])]
        announcer = Announcer(self.repetitions * len(self.works) * len(ways))
        for repetition in range(self.repetitions):
            for work in self.works:
                for way in ways:
                    announcer.begin(f"{work.name}, {way}")
                    self.measured.append(self._one(work, way, repetition))
                    announcer.end(f"{self.measured[-1].seconds:.3f} s an update")
        return self.measured

    def _one(self, work: TextWork, way: str, repetition: int) -> Measured:
        with TemporaryDirectory(prefix="htsrl-bench-") as name:
            folder = Path(name)
            if way == TRL:
                highest, readings = _run_trl(work.job(folder), self.trl_python or Path(), folder)
            else:
                highest, readings = _run_htsrl(work.config(way), folder)
        return measured_of(work, way, repetition, readings, highest)


def measured_of(work: TextWork, way: str, repetition: int, readings: Sequence[Reading], highest: float) -> Measured:
    if len(readings) != work.all_updates:
        raise HtsrlError(f"{work.name}, {way} ended after {len(readings)} of {work.all_updates} updates")
    first, last = readings[work.skipped - 1], readings[-1 - work.last]
    seconds = last.seconds - first.seconds
    phases = (last.learner_waited - first.learner_waited, last.generator_waited - first.generator_waited)
    generating, learning = (x / work.updates for x in phases) if way == "in turn" else (None, None)
    tokens = (last.tokens - first.tokens) / seconds
    return Measured(work.name, way, repetition, seconds / work.updates, tokens, highest, generating, learning)


def _run_htsrl(config: Config, folder: Path) -> tuple[float, list[Reading]]:
    config_file, run_dir, tokens, readings = folder / "config.json", folder / "run", 0.0, list[Reading]()
    config_file.write_text(to_json(config))
    command = ["-m", "htsrl", "train", "--config", str(config_file), "--trust", "--run-dir", str(run_dir)]
    highest = watched([sys.executable, *command], folder, htsrl_environment())
    names = ("time/time_elapsed", "wait/learner_seconds", "wait/executor_seconds", "completions/mean_length")
    for line in read_json_lines(run_dir / "metrics.jsonl"):
        seconds, learner, generator, length = (line[name] or 0.0 for name in names)
        tokens += length * config.experiment.num_envs
        readings.append(Reading(seconds, tokens, learner, generator))
    return highest, readings


def htsrl_environment() -> dict[str, str]:
    """With the reward that TRL has too."""
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(SCRIPTS)]))
    return {**os.environ, "PYTHONPATH": path}


def trl_call(python: Path) -> tuple[list[str], dict[str, str]]:
    """The command, less its job, and its environment: nothing comes from the network."""
    alone = {"PYTHONPATH": str(SCRIPTS), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    return [str(python.absolute()), "-m", "peer.trl_grpo"], {**os.environ, **alone}


def _run_trl(job: Mapping[str, Any], python: Path, folder: Path) -> tuple[float, list[Reading]]:
    (folder / "job.json").write_text(json.dumps(job))
    command, environment = trl_call(python)
    highest = watched([*command, str(folder / "job.json")], folder, environment)
    lines = read_json_lines(Path(job["readings"]))
    return highest, [Reading(line["seconds"] or 0.0, line["tokens"] or 0.0) for line in lines]


def watched(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> float:
    """Run it to its end; returns the most memory that all its processes had together, in MB."""
    highest, log = _Highest(), folder / "log"
    deadline = time.monotonic() + PATIENCE_SECONDS
    with log.open("w") as file:
        process = subprocess.Popen(command, env=dict(environment), stdout=file, stderr=subprocess.STDOUT)
        try:
            while process.poll() is None:
                highest.look(process.pid)
                time.sleep(LOOK_SECONDS)
                if time.monotonic() > deadline:
                    raise HtsrlError(f"a run took more than {PATIENCE_SECONDS:g} s")
        finally:
            process.kill()
            process.wait()
    if process.returncode != 0:
        raise HtsrlError(f"a run failed: {log.read_text(errors='replace')[-600:]}")
    return highest.megabytes


def documents(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    return [{**asdict(run), "bound": run.bound} for run in measured]


def ratios(measured: Sequence[Measured], work: str, over: str, of: str) -> list[float]:
    """How many times as many updates a second `of` makes as `over`, in every repetition."""
    seconds = {(run.way, run.repetition): run.seconds for run in measured if run.work == work}
    repetitions = sorted({run.repetition for run in measured if run.work == work})
    return [seconds[over, number] / seconds[of, number] for number in repetitions]


def shares_of_bound(measured: Sequence[Measured], work: str) -> list[float]:
    bounds = [run.bound for run in measured if run.work == work and run.bound is not None]
    return [gain / bound for gain, bound in zip(ratios(measured, work, "in turn", "side by side"), bounds, strict=True)]
