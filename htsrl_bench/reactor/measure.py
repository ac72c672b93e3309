"""How long a tag takes, and whether what is computed depends on how long workers take."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import xxhash

from htsrl_bench.announcer import Announcer
from htsrl_bench.reactor.graphs import AVERAGING, CARTPOLE, HAND_OVERS, INFERENCES, PONG, Graph
from htsrl_bench.reactor.workers import Workers, rounds
from htsrl_bench.record import Summary

HTSRL, RAY, ONE_PROCESS, AS_THEY_COME = "htsrl", "Ray", "one process", "Ray, as they come"
WARM_UP_TAGS = 5
MIN_TAGS = 5
WORKER_COUNTS = (1, 2, 4, 8, 16)
WORKS = (CARTPOLE, PONG, *INFERENCES)
HASHED = (AVERAGING, CARTPOLE, INFERENCES[0])


@dataclass(frozen=True)
class Cell:
    """A graph with some of its workers."""

    graph: Graph
    num_workers: int

    def __str__(self) -> str:
        return f"{self.graph.name}, {self.num_workers} workers"


CELLS = (
    *(Cell(graph, count) for graph in HAND_OVERS for count in WORKER_COUNTS),
    *(Cell(graph, graph.num_workers) for graph in WORKS),
)


@dataclass(frozen=True)
class Measured:
    """Tags of one cell, one after another."""

    cell: str
    way: str
    repetition: int
    num_tags: int
    median_milliseconds: float
    p99_milliseconds: float
    tags_per_second: float


def measure(
    ways: Mapping[str, Workers], cells: Sequence[Cell], repetitions: int, seconds: float, announcer: Announcer
) -> list[Measured]:
    """The ways take turns: what slows the machine for a while slows both."""
    measured = []
    for repetition in range(1, repetitions + 1):
        for cell in cells:
            announcer.begin(f"{cell}, repetition {repetition}")
            of_cell = [_measured(way, workers, cell, repetition, seconds) for way, workers in ways.items()]
            announcer.end(", ".join(f"{one.way} {one.median_milliseconds:.3f} ms" for one in of_cell))
            measured += of_cell
    return measured


def _measured(way: str, workers: Workers, cell: Cell, repetition: int, seconds: float) -> Measured:
    tags = rounds(workers, cell.graph, cell.num_workers)
    for _ in islice(tags, WARM_UP_TAGS):
        pass
    times = [time.perf_counter()]
    while times[-1] < times[0] + seconds or len(times) <= MIN_TAGS:
        next(tags)
        times.append(time.perf_counter())
    milliseconds = np.diff(times) * 1000
    median, p99 = np.percentile(milliseconds, [50, 99]).tolist()
    return Measured(
        str(cell), way, repetition, len(milliseconds), median, p99, len(milliseconds) / (times[-1] - times[0])
    )


def ratio(measured: Sequence[Measured], cell: str, way: str, to: str, field: str) -> Summary:
    """Of a figure of one way to that of the other, repetition by repetition."""
    values = {(one.repetition, one.way): float(getattr(one, field)) for one in measured if one.cell == cell}
    repetitions = sorted({repetition for repetition, _ in values})
    return Summary.of([values[repetition, way] / values[repetition, to] for repetition in repetitions])


@dataclass(frozen=True)
class Hashes:
    """Of all that the driver saw, run by run."""

    graph: str
    way: str
    digests: Sequence[str]

    @property
    def num_different(self) -> int:
        return len(set(self.digests))


def digest(workers: Workers, graph: Graph, num_tags: int, jitter_seconds: float) -> str:
    seen = xxhash.xxh3_128()
    for outputs in islice(rounds(workers, graph, graph.num_workers, jitter_seconds), num_tags):
        for output in outputs:
            for array in output.values():
                seen.update(np.ascontiguousarray(array).tobytes())
    return seen.hexdigest()


def hashes(
    ways: Mapping[str, Workers], num_runs: int, num_tags: int, jitter_seconds: float, announcer: Announcer
) -> list[Hashes]:
    """With workers that take as long as it happens; in one process once, without."""
    found = []
    for graph in HASHED:
        for way, workers in ways.items():
            announcer.begin(f"hashes of {graph.name}, {way}")
            runs, jitter = (1, 0.0) if way == ONE_PROCESS else (num_runs, jitter_seconds)
            digests = [digest(workers, graph, num_tags, jitter) for _ in range(runs)]
            found.append(Hashes(graph.name, way, digests))
            announcer.end(f"{found[-1].num_different} of {runs} runs")
    return found
