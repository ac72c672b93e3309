"""Steps per second of two checkouts of htsrl: the same `htsrl train` in both, in turns, at the defaults of each."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from htsrl.errors import ConfigError, HtsrlError
from htsrl.metrics.sinks import read_json_lines
from htsrl_bench.announcer import Announcer
from htsrl_bench.live_run import Update, rate
from htsrl_bench.record import Summary, Table

BEFORE, NOW = "before", "now"
LIGHT = "--algo ppo --epochs 4 --num-minibatches 4 --sync-interval 128 --preset none"
COMMANDS: Mapping[str, str] = {
    "cartpole-ppo": f"CartPole-v1 {LIGHT}",
    "halfcheetah-ppo": f"HalfCheetah-v5 {LIGHT}",
    "pong-a2c": "ALE/Pong-v5 --algo a2c",
}
"""What is trained, with flags alone that versions far apart have in common."""
WATCHED = "--no-tensorboard --progress off --log-every-steps 1"
WARM_UP_SHARE = 0.25
"""Of a run's updates, before which nothing is counted."""


@dataclass(frozen=True)
class CheckoutsBench:
    """Two folders with a checkout in each, the work, and how many environment steps each of its runs makes."""

    before: Path
    now: Path
    work: tuple[str, ...]
    steps_per_run: tuple[int, ...]
    repetitions: int

    def __post_init__(self) -> None:
        for folder in (self.before, self.now):
            if not (folder / "htsrl" / "__init__.py").is_file():
                raise ConfigError(
                    f"{folder} holds no htsrl; give the root of a checkout (`git worktree add` makes one)"
                )
        if not self.work or not set(self.work) <= set(COMMANDS):
            raise ConfigError(f"work={self.work} is not known; choose among {', '.join(COMMANDS)}")
        if len(self.steps_per_run) != len(self.work):
            raise ConfigError(f"steps_per_run={self.steps_per_run} must have a number for each of {self.work}")
        if self.repetitions < 1:
            raise ConfigError(f"repetitions={self.repetitions} must be at least 1")

    @property
    def folders(self) -> dict[str, Path]:
        return {BEFORE: self.before, NOW: self.now}


@dataclass(frozen=True)
class Pair:
    """Steps per second of two runs, one after the other."""

    work: str
    before: float
    now: float

    @property
    def ratio(self) -> float:
        return self.now / self.before


def measure(bench: CheckoutsBench) -> list[Pair]:
    announcer, pairs = Announcer(len(bench.work) * bench.repetitions), []
    for repetition in range(bench.repetitions):
        for work, steps in zip(bench.work, bench.steps_per_run, strict=True):
            announcer.begin(work)
            sides = (BEFORE, NOW) if repetition % 2 else (NOW, BEFORE)  # who goes first
            found = {side: steps_per_second(bench.folders[side], work, steps) for side in sides}
            pairs.append(Pair(work, found[BEFORE], found[NOW]))
            announcer.end(f"{pairs[-1].ratio:.3f}")
    return pairs


def steps_per_second(checkout: Path, work: str, steps: int) -> float:
    """Of a whole run by the code in that folder, without its first quarter."""
    with TemporaryDirectory(prefix="htsrl-bench-") as folder:
        run_dir = Path(folder) / "run"
        arguments = [*command_of(work, steps), "--run-dir", str(run_dir)]
        ended = subprocess.run(
            [sys.executable, "-m", "htsrl", *arguments],
            cwd=folder,  # whatever lies in the current one would be imported first
            env={**os.environ, "PYTHONPATH": str(checkout.resolve())},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if ended.returncode:
            raise HtsrlError(f"the run of {work} in {checkout} ended with {ended.returncode}:\n{ended.stderr}")
        return counted_rate(read_json_lines(run_dir / "metrics.jsonl"))


def command_of(work: str, steps: int) -> list[str]:
    return ["train", *shlex.split(COMMANDS[work]), *shlex.split(WATCHED), "--total-steps", str(steps)]


def counted_rate(lines: Sequence[Mapping[str, Any]]) -> float:
    """Steps per second after the warm-up, by the lines of a run's metrics."""
    timed = [line for line in lines if line.get("time/time_elapsed") and line.get("step")]
    updates = [Update(line["time/time_elapsed"], int(line["step"])) for line in timed]
    return rate(updates[int(WARM_UP_SHARE * len(updates)) :])


def summary(pairs: Sequence[Pair]) -> dict[str, Any]:
    return {
        work: {
            BEFORE: asdict(Summary.of([pair.before for pair in pairs if pair.work == work])),
            NOW: asdict(Summary.of([pair.now for pair in pairs if pair.work == work])),
            "ratio": asdict(Summary.of([pair.ratio for pair in pairs if pair.work == work])),
        }
        for work in dict.fromkeys(pair.work for pair in pairs)
    }


def table(bench: CheckoutsBench, commits: Mapping[str, str], found: Mapping[str, Any]) -> Table:
    rows = [
        [
            work,
            str(Summary(**of[BEFORE])),
            str(Summary(**of[NOW])),
            "{median:.3f} ({lowest:.3f} to {highest:.3f})".format(**of["ratio"]),
        ]
        for work, of in found.items()
    ]
    commands = "; ".join(
        f"`htsrl {shlex.join(command_of(work, steps))}`"
        for work, steps in zip(bench.work, bench.steps_per_run, strict=True)
    )
    return Table(
        ["work", "before, steps/s", "now, steps/s", "now over before"],
        rows,
        [
            f"Before: {commits[BEFORE]}. Now: {commits[NOW]}. Median (lowest to highest) of {bench.repetitions} pairs; "
            "the two runs of a pair follow one another, the ratio is that of each pair. Counted from a quarter of a "
            f"run to its end: {commands}."
        ],
    )
