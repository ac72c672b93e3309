"""Whether what a run holds grows: memory and file descriptors of all its processes, and the files in its folder."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from htsrl.config import Config
from htsrl_bench.announcer import Announcer
from htsrl_bench.live_run import LiveRun, live_run
from htsrl_bench.process_tree import memory_of, num_descriptors, tree_of
from htsrl_bench.record import Table
from htsrl_bench.throughput import settle

NUM_LOOKS = 60
MILLION = 1_000_000
GROWTH_SECONDS = 600.0
"""Growth is told for so long a time."""


@dataclass(frozen=True)
class Look:
    """A run at some time after it had settled."""

    seconds: float
    by_process: Mapping[str, float]
    """MB (PSS)."""
    descriptors: int = 0
    """Open files, pipes and sockets of all processes."""
    steps: int = 0
    by_file: Mapping[str, int] = field(default_factory=dict)
    """Bytes of the files in the run's folder; those of a folder in it are one entry."""

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
        """MB in ten minutes: the slope of the straight line through the looks of the later half.

        In the first half all processes have started, which some do when there is first something to do for them.
        """
        later = self.looks[len(self.looks) // 2 :]
        seconds, megabytes = zip(*((look.seconds, look.megabytes) for look in later), strict=True)
        slope, _ = np.polyfit(seconds, megabytes, 1)
        return float(slope) * GROWTH_SECONDS

    @property
    def steps(self) -> int:
        return self.looks[-1].steps - self.looks[0].steps

    def file_growth(self) -> dict[str, float]:
        """Bytes that each file grew by in a million steps; files that are written whole again have some or none."""
        first, last = self.looks[0].by_file, self.looks[-1].by_file
        return {name: (size - first.get(name, 0)) * MILLION / max(self.steps, 1) for name, size in last.items()}

    def document(self) -> dict[str, Any]:
        sizes = [look.megabytes for look in self.looks]
        return {
            "seconds": self.looks[-1].seconds,
            "first_megabytes": sizes[0],
            "last_megabytes": sizes[-1],
            "most_megabytes": max(sizes),
            "growth_megabytes_in_10_minutes": self.growth,
            "steps": self.steps,
            "first_descriptors": self.looks[0].descriptors,
            "last_descriptors": self.looks[-1].descriptors,
            "most_descriptors": max(look.descriptors for look in self.looks),
            "last_bytes": dict(self.looks[-1].by_file),
            "bytes_per_million_steps": self.file_growth(),
        }


def soak(configs: Mapping[str, Config], seconds: float) -> list[Soaked]:
    announcer, soaked = Announcer(len(configs)), []
    for name, config in configs.items():
        announcer.begin(f"{name}, {seconds:g} s")
        with live_run(config) as run:
            settle(run)
            begin, looks = time.monotonic(), [_look(run, 0.0)]
            while looks[-1].seconds < seconds:
                time.sleep(seconds / NUM_LOOKS)
                looks.append(_look(run, time.monotonic() - begin))
        soaked.append(Soaked(name, looks))
        announcer.end(f"{soaked[-1].growth:+.1f} MB in 10 minutes")
    return soaked


def _look(run: LiveRun, seconds: float) -> Look:
    pids = tree_of(run.pid)
    memories = {f"{memory.name} {pid}": memory.pss for pid, memory in ((pid, memory_of(pid)) for pid in pids)}
    return Look(seconds, memories, sum(map(num_descriptors, pids)), run.updates()[-1].steps, _sizes(run.folder.path))


def _sizes(folder: Path) -> dict[str, int]:
    return {entry.name: sum(_size(file) for file in (entry, *entry.rglob("*"))) for entry in sorted(folder.iterdir())}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:  # a file that was written under another name first
        return 0


def repetitions(soaked: Sequence[Soaked]) -> list[dict[str, Any]]:
    return [asdict(of) for of in soaked]


def file_table(soaked: Sequence[Soaked]) -> Table:
    """The files of every run."""
    rows = [
        [of.config, name, f"{size / 1000:,.1f}", f"{of.file_growth()[name] / 1000:+,.1f}"]
        for of in soaked
        for name, size in of.looks[-1].by_file.items()
        if size
    ]
    notes = [
        f"{of.config}: {of.steps:,} steps between the first look and the last. A line of metrics for every "
        "log_every_steps; digests one for every update, which is what a run can be checked against."
        for of in soaked
    ]
    return Table(["run", "file or folder", "kB at last", "growth, kB in a million steps"], rows, notes)


def table(soaked: Sequence[Soaked], notes: Sequence[str] = ()) -> Table:
    rows = [
        [
            of.config,
            f"{of.looks[-1].seconds:.0f} s",
            f"{of.looks[0].megabytes:,.0f}",
            f"{of.looks[-1].megabytes:,.0f}",
            f"{of.growth:+.1f}",
            f"{of.looks[0].descriptors}, {of.looks[-1].descriptors}",
        ]
        for of in soaked
    ]
    return Table(
        [
            "run",
            "looked at for",
            "MB at first",
            "MB at last",
            "growth, MB in 10 minutes",
            "descriptors, first and last",
        ],
        rows,
        [
            "Memory of all processes (PSS) from when the run had settled; growth is the slope of the straight line "
            f"through the later half of {NUM_LOOKS + 1} looks. Descriptors are those of all processes.",
            *notes,
        ],
    )
