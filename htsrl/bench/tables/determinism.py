"""`htsrl bench determinism`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from htsrl.bench import determinism
from htsrl.bench.command_line import bench_command
from htsrl.bench.provenance import Provenance
from htsrl.bench.record import Record, publish
from htsrl.bench.works import known, split_by_installed


@dataclass(frozen=True)
class DeterminismTable:
    """Throughput with reference shapes and digest, against runs that batch freely and hash nothing."""

    work: tuple[str, ...] = ("pong-a2c", "pong-ppo", "cartpole-ppo")
    """What is trained."""
    seconds_per_run: float = 15.0
    """How long each run is measured once it is under way; longer where updates are slow."""
    repetitions: int = 5
    """Pairs of runs for each work; they take turns."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        known(self.work)
        here, _ = split_by_installed(self.work)
        bench = determinism.DeterminismBench(here, self.seconds_per_run, self.repetitions)
        provenance = Provenance.take()
        pairs = determinism.measure(bench)
        summary = determinism.summary(pairs)
        record = Record(
            name="determinism",
            command=bench_command("determinism", self),
            provenance=provenance,
            configs=bench.configs(),
            repetitions=determinism.repetitions(pairs),
            summary=summary,
            tables=[determinism.table(bench, summary)],
        )
        publish(record, self.output)
        return 0
