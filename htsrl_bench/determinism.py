"""What reproducibility costs: the same run with reference shapes and digest, and without either."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from htsrl.config import Config, Placement
from htsrl.errors import ConfigError
from htsrl_bench.announcer import Announcer
from htsrl_bench.live_run import live_run
from htsrl_bench.record import Summary, Table
from htsrl_bench.throughput import watch
from htsrl_bench.works import WORKS, known

FREE_RUNNING = "htsrl_bench.unsafe_free_running"
"""A module that takes determinism away from the run that imports it."""
GOAL = 0.05
"""The most that it may cost."""


@dataclass(frozen=True)
class DeterminismBench:
    """The settings of all runs; what differs between them is the work, and whether they are reproducible."""

    work: tuple[str, ...]
    seconds_per_run: float
    repetitions: int

    def __post_init__(self) -> None:
        known(self.work)
        if self.repetitions < 1 or self.seconds_per_run <= 0:
            raise ConfigError(
                f"repetitions={self.repetitions} must be at least 1, seconds_per_run={self.seconds_per_run:g} above 0"
            )

    def config(self, work: str, free: bool) -> Config:
        placement = Placement(
            checkpoint_every_seconds=None,  # neither is about bits, and both would disturb
            restart_workers=False,
            log_every_steps=1,
            tensorboard=False,
            progress="off",
        )
        return Config(replace(WORKS[work], imports=(FREE_RUNNING,) if free else ()), placement)

    def configs(self) -> dict[str, Config]:
        return {_name(work, free): self.config(work, free) for work in self.work for free in (False, True)}


@dataclass(frozen=True)
class Pair:
    """Both sides, one right after the other, in steps per second."""

    work: str
    reproducible: float
    free: float

    @property
    def cost(self) -> float:
        """The share of the throughput that reproducibility takes."""
        return 1.0 - self.reproducible / self.free


def measure(bench: DeterminismBench) -> list[Pair]:
    """Pairs in turn, and which side goes first as well: a machine that slows down is not held against one of them."""
    announcer, pairs = Announcer(2 * len(bench.work) * bench.repetitions), []
    for repetition in range(bench.repetitions):
        for work in bench.work:
            measured = {}
            for free in (False, True) if repetition % 2 == 0 else (True, False):
                announcer.begin(_name(work, free))
                measured[free] = _steps_per_second(bench.config(work, free), bench.seconds_per_run)
                announcer.end(f"{measured[free]:,.0f} steps/s")
            pairs.append(Pair(work, reproducible=measured[False], free=measured[True]))
    return pairs


def repetitions(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    return [{**asdict(pair), "cost": pair.cost} for pair in pairs]


def summary(pairs: Sequence[Pair]) -> dict[str, Any]:
    works = {}
    for work in dict.fromkeys(pair.work for pair in pairs):
        own = [pair for pair in pairs if pair.work == work]
        costs = [pair.cost for pair in own]
        works[work] = {
            "reproducible": asdict(Summary.of([pair.reproducible for pair in own])),
            "free": asdict(Summary.of([pair.free for pair in own])),
            "cost": statistics.median(costs),
            "cost_range": [min(costs), max(costs)],
        }
    return {"goal": GOAL, "works": works}


def table(bench: DeterminismBench, document: Mapping[str, Any]) -> Table:
    rows = []
    for work, of in document["works"].items():
        low, high = of["cost_range"]
        sides = [str(Summary(**of[side])) for side in ("reproducible", "free")]
        verdict = f"{GOAL:.0%} {'met' if of['cost'] <= GOAL else 'missed'}"
        rows.append([work, *sides, f"{of['cost']:.1%} ({low:.1%} to {high:.1%})", verdict])
    return Table(
        ["work", "steps/s, reproducible", "steps/s, free running", "cost", "at most"],
        rows,
        [
            f"Median (lowest to highest) of {bench.repetitions} pairs of runs, {bench.seconds_per_run:g} s each; the "
            "cost is that of each pair, below 0 where noise made the free run the slower one. Free running sends "
            "batches of any size to the network as they come and hashes neither batches nor parameters; its results "
            "depend on timing. What the checks of observations and rewards take, which are in both, `htsrl bench "
            "costs` tells.",
        ],
    )


def _steps_per_second(config: Config, seconds: float) -> float:
    with live_run(config) as run:
        return watch(run, seconds, has_spare=config.placement.restart_workers).steps_per_second


def _name(work: str, free: bool) -> str:
    return f"{work}, {'free running' if free else 'reproducible'}"
