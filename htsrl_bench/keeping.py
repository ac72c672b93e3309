"""What it costs to lose nothing: the same run with checkpoints and a spare process, and without either."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from htsrl.config import Config, Placement
from htsrl.config.presets import preset
from htsrl.errors import ConfigError
from htsrl_bench.announcer import Announcer
from htsrl_bench.live_run import Update, live_run, rate
from htsrl_bench.record import Summary, Table

ENV_ID = "ALE/Pong-v5"
ALGORITHMS = ("a2c", "ppo")
WARM_UP_SECONDS = 20.0
"""After the first update: until the spare process has made its preparations, which happens once in a run."""
MIN_UPDATES = 5
"""Measured in a run, however slow."""


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
    with live_run(config) as run:
        run.wait_until(lambda: bool(run.updates()))
        time.sleep(WARM_UP_SECONDS + seconds)
        run.wait_until(lambda: len(settled(run.updates())) >= MIN_UPDATES)
        return rate(settled(run.updates()))


def settled(updates: Sequence[Update]) -> list[Update]:
    """Those so long after the first that only training is left to be done."""
    return [update for update in updates if update.seconds >= updates[0].seconds + WARM_UP_SECONDS]


def _name(algorithm: str, keeps: bool) -> str:
    return f"{algorithm}, {'keeping' if keeps else 'careless'}"
