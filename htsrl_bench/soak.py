"""Whether a run's memory grows: all its processes, looked at for a long time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from htsrl.config import Config
from htsrl_bench.announcer import Announcer
from htsrl_bench.live_run import live_run
from htsrl_bench.process_tree import memory_of, tree_of
from htsrl_bench.record import Table
from htsrl_bench.throughput import settle

NUM_LOOKS = 60
GROWTH_SECONDS = 600.0
"""Growth is told for so long a time."""


@dataclass(frozen=True)
class Look:
    """The memory of a run at some time after it had settled."""

    seconds: float
    by_process: Mapping[str, float]
    """MB (PSS)."""

    @property
    def megabytes(self) -> float:
        return sum(self.by_process.values())


@dataclass(frozen=True)
class Soaked:
    """One run, looked at many times."""

    config: str
    looks: Sequence[Look]

    @property
    def growth(self) -> float:
        """MB in ten minutes: the slope of the straight line through all looks."""
        seconds, megabytes = zip(*((look.seconds, look.megabytes) for look in self.looks), strict=True)
        slope, _ = np.polyfit(seconds, megabytes, 1)
        return float(slope) * GROWTH_SECONDS

    def document(self) -> dict[str, Any]:
        sizes = [look.megabytes for look in self.looks]
        return {
            "seconds": self.looks[-1].seconds,
            "first_megabytes": sizes[0],
            "last_megabytes": sizes[-1],
            "most_megabytes": max(sizes),
            "growth_megabytes_in_10_minutes": self.growth,
        }


def soak(configs: Mapping[str, Config], seconds: float) -> list[Soaked]:
    announcer, soaked = Announcer(len(configs)), []
    for name, config in configs.items():
        announcer.begin(f"{name}, {seconds:g} s")
        with live_run(config) as run:
            settle(run)
            begin, looks = time.monotonic(), [_look(run.pid, 0.0)]
            while looks[-1].seconds < seconds:
                time.sleep(seconds / NUM_LOOKS)
                looks.append(_look(run.pid, time.monotonic() - begin))
        soaked.append(Soaked(name, looks))
        announcer.end(f"{soaked[-1].growth:+.1f} MB in 10 minutes")
    return soaked


def _look(pid: int, seconds: float) -> Look:
    return Look(seconds, {f"{memory.name} {pid}": memory.pss for pid, memory in _memories(pid)})


def _memories(pid: int) -> list[tuple[int, Any]]:
    return [(each, memory_of(each)) for each in tree_of(pid)]


def repetitions(soaked: Sequence[Soaked]) -> list[dict[str, Any]]:
    return [asdict(of) for of in soaked]


def table(soaked: Sequence[Soaked], notes: Sequence[str] = ()) -> Table:
    rows = [
        [
            of.config,
            f"{of.looks[-1].seconds:.0f} s",
            f"{of.looks[0].megabytes:,.0f}",
            f"{of.looks[-1].megabytes:,.0f}",
            f"{of.growth:+.1f}",
        ]
        for of in soaked
    ]
    return Table(
        ["run", "looked at for", "MB at first", "MB at last", "growth, MB in 10 minutes"],
        rows,
        [
            "Memory of all processes (PSS) from when the run had settled; growth is the slope of the straight line "
            f"through {NUM_LOOKS + 1} looks.",
            *notes,
        ],
    )
