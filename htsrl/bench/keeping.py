"""What it costs to lose nothing: the same run with checkpoints and a spare process, and without either."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from htsrl.bench.announcer import Announcer
from htsrl.bench.record import Summary, Table
from htsrl.config import Config, Placement
from htsrl.config_file import to_json
from htsrl.errors import ConfigError, HtsrlError
from htsrl.metrics.sinks import read_json_lines
from htsrl.presets import preset
from htsrl.run_folder import RunFolder

ENV_ID = "ALE/Pong-v5"
ALGORITHMS = ("a2c", "ppo")
WARM_UP_SECONDS = 20.0
"""After the first update: until the spare process has made its preparations, which happens once in a run."""
PATIENCE_SECONDS = 120.0
"""Until there is a first update."""


@dataclass(frozen=True)
class KeepingBench:
    """The settings of all runs; what differs between them is the algorithm, and whether they keep anything."""

    seconds_per_run: float
    repetitions: int
    checkpoint_every_seconds: float

    def __post_init__(self) -> None:
        if self.repetitions < 1 or self.checkpoint_every_seconds <= 0 or self.seconds_per_run <= 0:
            raise ConfigError(
                f"repetitions={self.repetitions} must be at least 1, checkpoint_every_seconds="
                f"{self.checkpoint_every_seconds:g} and seconds_per_run={self.seconds_per_run:g} above 0"
            )

    def config(self, algorithm: str, keeps: bool) -> Config:
        placement = Placement(
            checkpoint_every_seconds=self.checkpoint_every_seconds if keeps else None,
            restart_workers=keeps,
            log_every_steps=1,  # a line for every update: between them the time is taken
            tensorboard=False,
            progress="off",
        )
        return Config(preset(ENV_ID, algorithm), placement)

    def configs(self) -> dict[str, Config]:
        return {
            _name(algorithm, keeps): self.config(algorithm, keeps)
            for algorithm in ALGORITHMS
            for keeps in (True, False)
        }


@dataclass(frozen=True)
class Pair:
    """Both sides, one right after the other."""

    algorithm: str
    keeping: float
    """Steps per second."""
    careless: float

    @property
    def cost(self) -> float:
        """The share of the throughput that keeping takes."""
        return 1.0 - self.keeping / self.careless


def measure(bench: KeepingBench) -> list[Pair]:
    """Pairs in turn, and which side goes first as well: a machine that slows down is not held against one of them."""
    announcer, pairs = Announcer(2 * len(ALGORITHMS) * bench.repetitions), []
    for repetition in range(bench.repetitions):
        for algorithm in ALGORITHMS:
            order = (True, False) if repetition % 2 == 0 else (False, True)
            measured = {}
            for keeps in order:
                announcer.begin(_name(algorithm, keeps))
                measured[keeps] = _steps_per_second(bench.config(algorithm, keeps), bench.seconds_per_run)
                announcer.end(f"{measured[keeps]:,.0f} steps/s")
            pairs.append(Pair(algorithm, keeping=measured[True], careless=measured[False]))
    return pairs


def repetitions(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    return [{**asdict(pair), "cost": pair.cost} for pair in pairs]


def summary(pairs: Sequence[Pair]) -> dict[str, Any]:
    document = {}
    for algorithm in ALGORITHMS:
        own = [pair for pair in pairs if pair.algorithm == algorithm]
        costs = [pair.cost for pair in own]
        document[algorithm] = {
            "keeping": asdict(Summary.of([pair.keeping for pair in own])),
            "careless": asdict(Summary.of([pair.careless for pair in own])),
            "cost": statistics.median(costs),
            "cost_range": [min(costs), max(costs)],
        }
    return document


def table(bench: KeepingBench, document: Mapping[str, Any]) -> Table:
    rows = []
    for algorithm, measured in document.items():
        low, high = measured["cost_range"]
        sides = [str(Summary(**measured[side])) for side in ("keeping", "careless")]
        rows.append([algorithm, *sides, f"{measured['cost']:.1%} ({low:.1%} to {high:.1%})"])
    every = f"{bench.checkpoint_every_seconds:g} s"
    return Table(
        ["preset", "steps/s, keeping", "steps/s, careless", "cost"],
        rows,
        [
            f"{ENV_ID}, {bench.seconds_per_run:g} s of each run, from {WARM_UP_SECONDS:g} s after its first update on. "
            f"Keeping writes a checkpoint every {every} and has a spare process for workers that die; careless has "
            f"neither. Median (lowest to highest) of {bench.repetitions} pairs; the cost is that of each pair, below 0 "
            "where noise made the careless run the slower one. Capsules, which no setting turns off, are in both: "
            "`htsrl bench costs` has their share.",
        ],
    )


def _steps_per_second(config: Config, seconds: float) -> float:
    """Of a run in processes of its own, which is killed when it has been measured."""
    with TemporaryDirectory(prefix="htsrl-keeping-") as name:
        folder = RunFolder(Path(name) / "run")
        (Path(name) / "config.json").write_text(to_json(config))
        command = ["train", "--config", str(Path(name) / "config.json"), "--run-dir", str(folder.path)]
        run = subprocess.Popen(
            [sys.executable, "-m", "htsrl", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            return _observed(run, folder, seconds)
        finally:
            run.kill()
            run.wait()


def _observed(run: subprocess.Popen[bytes], folder: RunFolder, seconds: float) -> float:
    start = time.monotonic()
    while not (folder.metrics_file.exists() and folder.metrics_file.stat().st_size):
        if run.poll() is not None or time.monotonic() > start + PATIENCE_SECONDS:
            raise HtsrlError(f"the run made no update in {PATIENCE_SECONDS:g} s, or ended")
        time.sleep(0.1)
    time.sleep(WARM_UP_SECONDS + seconds)
    if run.poll() is not None:
        raise HtsrlError(f"the run ended by itself, with code {run.returncode}")
    return rate(read_json_lines(folder.metrics_file), WARM_UP_SECONDS)


def rate(lines: Sequence[Mapping[str, Any]], skipped_seconds: float) -> float:
    """Steps per second between two updates: the first one so long after the very first, and the last."""
    times = [(float(line["time/time_elapsed"]), int(line["step"])) for line in lines]
    measured = [(at, step) for at, step in times if at >= times[0][0] + skipped_seconds]
    if len(measured) < 2:
        raise HtsrlError("there were less than two updates in the time that is measured; give more seconds per run")
    (first, first_step), (last, last_step) = measured[0], measured[-1]
    return (last_step - first_step) / (last - first)


def _name(algorithm: str, keeps: bool) -> str:
    return f"{algorithm}, {'keeping' if keeps else 'careless'}"
