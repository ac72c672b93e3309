"""Chaos: the same run undisturbed, and with somebody who kills its processes at random. No bit may differ."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from htsrl.algorithms.a2c import A2C
from htsrl.config import Config, Experiment, Placement
from htsrl.config.file import to_json
from htsrl.config.presets import preset
from htsrl.digest import first_difference, read_links
from htsrl.errors import ConfigError, HtsrlError
from htsrl.runs.folder import RunFolder
from htsrl_bench.announcer import Announcer
from htsrl_bench.killer import Kill
from htsrl_bench.record import Table

SUPERVISOR, SPARE = "supervisor", "spare"
ROLES = ("executor", "actor", "learner", "gradient worker", SPARE, SUPERVISOR)
OBITUARY = re.compile(r"^(executor|actor|learner|gradient worker).* \(pid ([0-9]+)\) .*is started again$", re.MULTILINE)
KILLER_SECONDS = 10.0
"""How long the killer may take to notice that it is not needed any more."""


@dataclass(frozen=True)
class ChaosTask:
    """A run to be disturbed."""

    experiment: Experiment
    kills: int
    steps_per_kill: int
    seconds_per_kill: float
    """On the average: time enough to come back and get on a little."""
    checkpoint_every_seconds: float
    executor_threads: bool = False

    def config(self, kills: int) -> Config:
        """As long as it takes for so many kills."""
        return Config(
            replace(self.experiment, total_steps=kills * self.steps_per_kill),
            Placement(
                num_executors=2,
                executor_threads=self.executor_threads,
                num_actors=1,  # so that each role has a process of its own
                checkpoint_every_seconds=self.checkpoint_every_seconds,
                tensorboard=False,
                progress="off",
            ),
        )


TASKS: Mapping[str, ChaosTask] = {
    "cartpole": ChaosTask(Experiment("CartPole-v1", algorithm=A2C()), 200, 5_000, 1.5, checkpoint_every_seconds=3.0),
    "atari": ChaosTask(preset("ALE/Pong-v5", "a2c"), 50, 3_000, 4.0, checkpoint_every_seconds=5.0),
    "sleeping": ChaosTask(
        Experiment("htsrl/Sleeping-v0", {"mean_seconds": 0.002}, imports=("htsrl.envs.toy",), algorithm=A2C()),
        *(50, 4_000, 1.5),
        checkpoint_every_seconds=3.0,
        executor_threads=True,
    ),
}


@dataclass(frozen=True)
class Lived:
    """How a run came through."""

    run: str
    """undisturbed or disturbed."""
    seconds: float
    """From the first command to the end of the last, start-up included."""
    steps_per_second: float
    digest: str
    kills: Mapping[str, int]
    """How many, by role."""
    restarts: int
    """Of workers, by the supervisor."""
    resumes: int
    new_starts: int
    """After kills before the first checkpoint."""


@dataclass(frozen=True)
class Verdict:
    """Two lives of one run."""

    task: str
    undisturbed: Lived
    disturbed: Lived
    difference: str | None
    """None where they agree to the bit."""
    kills: int
    """How many there were to be."""

    @property
    def is_passed(self) -> bool:
        return self.difference is None and sum(self.disturbed.kills.values()) == self.kills

    def lines(self) -> list[str]:
        made = sum(self.disturbed.kills.values())
        equal = "Digest of every barrier and final policy are equal to the bit."
        missing = [] if made == self.kills else [f"THE RUN ENDED BEFORE ITS TIME: after {made} of {self.kills} kills."]
        return [equal if self.difference is None else f"THE RUNS DIFFER: {self.difference}.", *missing]

    def document(self) -> dict[str, Any]:
        return {
            "equal": self.difference is None,
            "difference": self.difference,
            "kills": dict(self.disturbed.kills),
            "restarts": self.disturbed.restarts,
            "resumes": self.disturbed.resumes,
            "new_starts": self.disturbed.new_starts,
            "throughput_share": self.disturbed.steps_per_second / self.undisturbed.steps_per_second,
        }


def endure(task: str, kills: int, seed: int, announcer: Announcer) -> Verdict:
    """Train undisturbed, then with kills, and compare."""
    if kills < 1:
        raise ConfigError(f"kills={kills} must be at least 1")
    config = TASKS[task].config(kills)
    with TemporaryDirectory(prefix="htsrl-chaos-") as name:
        folder = Path(name)
        (folder / "config.json").write_text(to_json(config))
        announcer.begin(f"{task}, undisturbed, {config.experiment.total_steps:,} steps")
        undisturbed = _live(folder, "undisturbed", config, None)
        announcer.end(f"{undisturbed.seconds:.0f} s, digest {undisturbed.digest}")
        announcer.begin(f"{task}, {kills} kills, seed {seed}")
        with _killer(seed, kills, kills * TASKS[task].seconds_per_kill, folder / "kills") as killer:
            disturbed = _live(folder, "disturbed", config, killer)
        announcer.end(f"{disturbed.seconds:.0f} s, digest {disturbed.digest}")
        difference = difference_of(folder / "undisturbed", folder / "disturbed", config)
    return Verdict(task, undisturbed, disturbed, difference, kills)


def difference_of(undisturbed: Path, disturbed: Path, config: Config) -> str | None:
    """Where the runs part, in words; reading the links finds barriers that are missing, doubled or out of order."""
    links, expected = read_links(disturbed), read_links(undisturbed)
    if difference := first_difference(links, expected):
        return difference
    if len(links) != config.experiment.num_intervals:
        return f"both have {len(links)} barriers instead of {config.experiment.num_intervals}"
    policies = [RunFolder(path).policy_file.read_bytes() for path in (undisturbed, disturbed)]
    return None if policies[0] == policies[1] else "the digests are equal, policy.safetensors is not"


def repetitions(verdict: Verdict) -> list[dict[str, Any]]:
    return [{"task": verdict.task, **asdict(lived)} for lived in (verdict.undisturbed, verdict.disturbed)]


def table(verdict: Verdict, seed: int) -> Table:
    kills = [f"{role} kills" for role in ROLES]
    headings = ["run", "seconds", "steps/s", *kills, "restarts", "resumes", "new starts", "digest"]
    rows = [
        [
            lived.run,
            f"{lived.seconds:,.0f}",
            f"{lived.steps_per_second:,.0f}",
            *(str(lived.kills.get(role, 0)) for role in ROLES),
            str(lived.restarts),
            str(lived.resumes),
            str(lived.new_starts),
            f"`{lived.digest}`",
        ]
        for lived in (verdict.undisturbed, verdict.disturbed)
    ]
    return Table(
        headings,
        rows,
        [
            *verdict.lines(),
            f"SIGKILL at random times to random processes, seed {seed}. A run without its supervisor is resumed, or "
            "started anew where it has no checkpoint yet. Times are of whole commands, with all their starts. Who is "
            "counted as a spare had no role yet, or the supervisor died before it could say which.",
        ],
    )


def _live(folder: Path, name: str, config: Config, killer: subprocess.Popen[str] | None) -> Lived:
    """One run from its first command to its end, resumed as often as its main process is killed."""
    run_dir, stderr_file = RunFolder(folder / name), folder / f"{name}.stderr"
    begin = ["train", "--config", str(folder / "config.json"), "--run-dir", str(run_dir.path)]
    start, resumes, new_starts, command = time.monotonic(), 0, 0, begin
    while not _command(command, stderr_file, killer) and not run_dir.is_complete():
        if any(run_dir.checkpoints_dir.glob("[0-9]*")):
            resumes += 1
            command = ["resume", str(run_dir.path)]
        else:
            new_starts += 1
            shutil.rmtree(run_dir.path, ignore_errors=True)
            command = begin
    seconds = time.monotonic() - start
    roles = {int(pid): role for role, pid in OBITUARY.findall(stderr_file.read_text())}
    return Lived(
        run=name,
        seconds=seconds,
        steps_per_second=config.experiment.num_intervals * config.experiment.batch_steps / seconds,
        digest=read_links(run_dir.path)[-1].chain,
        kills=dict(Counter(SUPERVISOR if kill.is_main else roles.get(kill.pid, SPARE) for kill in _kills(folder))),
        restarts=len(OBITUARY.findall(stderr_file.read_text())),
        resumes=resumes,
        new_starts=new_starts,
    )


def _command(arguments: Sequence[str], stderr_file: Path, killer: subprocess.Popen[str] | None) -> bool:
    """Run htsrl, with the killer set on it; whether it came to its end."""
    with stderr_file.open("a") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "htsrl", *arguments], stdout=subprocess.DEVNULL, stderr=stderr
        )
    try:
        if killer is not None:
            _tell(killer, process.pid)
        exit_code = process.wait()
    finally:
        process.kill()
        process.wait()
    if exit_code not in (0, -signal.SIGKILL):
        last_lines = "\n".join(stderr_file.read_text().splitlines()[-10:])
        raise HtsrlError(f"`htsrl {arguments[0]}` ended with code {exit_code}; it said last:\n{last_lines}")
    return exit_code == 0


@contextmanager
def _killer(seed: int, kills: int, seconds: float, kills_file: Path) -> Iterator[subprocess.Popen[str]]:
    with kills_file.open("w") as stdout:
        killer = subprocess.Popen(
            [sys.executable, "-m", "htsrl_bench.killer", str(seed), str(kills), str(seconds)],
            stdin=subprocess.PIPE,
            stdout=stdout,
            text=True,
        )
    try:
        yield killer
        killer.communicate(timeout=KILLER_SECONDS)
    finally:
        killer.kill()
        killer.wait()


def _tell(killer: subprocess.Popen[str], pid: int) -> None:
    stdin: IO[str] | None = killer.stdin
    assert stdin is not None
    stdin.write(f"{pid}\n")
    stdin.flush()


def _kills(folder: Path) -> list[Kill]:
    path = folder / "kills"
    return [Kill(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []
