"""`htsrl bench reactor`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from htsrl.cluster.connection import is_installed
from htsrl.errors import ConfigError
from htsrl_bench.announcer import Announcer
from htsrl_bench.command_line import bench_command
from htsrl_bench.provenance import Provenance
from htsrl_bench.reactor import measure as reactor
from htsrl_bench.reactor.measure import CELLS, HASHED, WORKS, Cell, Hashes, Measured, ratio
from htsrl_bench.reactor.report import hand_over_table, hash_table, highlights, works_table
from htsrl_bench.reactor.workers import AsTheyCome, InOneProcess, RayWorkers, Workers, shared_workers
from htsrl_bench.record import Record, publish


@dataclass(frozen=True)
class ReactorTable:
    """The same graphs of workers in htsrl's runtime and in plain Ray actors: exit code 1 where a hash differs."""

    repetitions: int = 3
    """Of every measurement; the two take turns."""
    seconds: float = 0.8
    """How long each is measured."""
    hash_runs: int = 20
    """Runs with jitter whose hashes are compared."""
    hash_tags: int = 25
    """Of each of them."""
    jitter_seconds: float = 0.002
    """What a reaction is held up by at most."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        if not is_installed():
            raise ConfigError("bench reactor compares with Ray, which is not installed; pip install 'htsrl[ray]'")
        if self.repetitions < 1 or self.hash_runs < 1:
            raise ConfigError(f"repetitions={self.repetitions} and hash_runs={self.hash_runs} must be at least 1")
        provenance = Provenance.take()
        provenance.versions["ray"] = version("ray")
        announcer = Announcer(self.repetitions * len(CELLS) + len(HASHED) * 4)
        with shared_workers() as shared, closing(RayWorkers()) as actors:
            both: dict[str, Workers] = {reactor.HTSRL: shared, reactor.RAY: actors}
            measured = self._measure(both, announcer)
            all_ways: dict[str, Workers] = {
                reactor.ONE_PROCESS: InOneProcess(),
                **both,
                reactor.AS_THEY_COME: AsTheyCome(actors),
            }
            found = reactor.hashes(all_ways, self.hash_runs, self.hash_tags, self.jitter_seconds, announcer)
        publish(self._record(provenance, measured, found), self.output)
        return 0 if all(one.num_different == 1 for one in found if one.way in both) else 1

    def _measure(self, both: Mapping[str, Workers], announcer: Announcer) -> list[Measured]:
        works = [Cell(graph, graph.num_workers) for graph in WORKS]
        hand_overs = [cell for cell in CELLS if cell not in works]
        with_one: dict[str, Workers] = {reactor.ONE_PROCESS: InOneProcess(), **both}
        return [
            *reactor.measure(both, hand_overs, self.repetitions, self.seconds, announcer),
            *reactor.measure(with_one, works, self.repetitions, self.seconds, announcer),
        ]

    def _record(self, provenance: Provenance, measured: Sequence[Measured], found: Sequence[Hashes]) -> Record:
        ratios: dict[str, Any] = {
            str(cell): asdict(ratio(measured, str(cell), reactor.HTSRL, reactor.RAY, "tags_per_second"))
            for cell in CELLS
        }
        return Record(
            name="reactor",
            command=bench_command("reactor", self),
            provenance=provenance,
            configs={},
            repetitions=[*map(asdict, measured), *map(asdict, found)],
            summary={"tags_per_second_htsrl_over_ray": ratios, "highlights": highlights(ratios)},
            tables=[
                hand_over_table(measured, self.repetitions, self.seconds),
                works_table(measured),
                hash_table(found, self.hash_tags, self.jitter_seconds),
            ],
        )
