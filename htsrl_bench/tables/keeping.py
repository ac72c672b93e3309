"""`htsrl bench keeping`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from htsrl_bench import keeping
from htsrl_bench.command_line import bench_command
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, publish


@dataclass(frozen=True)
class KeepingTable:
    """Throughput of Pong with checkpoints and workers that are started again, against a run without either."""

    seconds_per_run: float = 30.0
    """How long each run is measured, once it is under way."""
    repetitions: int = 3
    """Pairs of runs for each algorithm; they take turns."""
    checkpoint_every_seconds: float = 10.0
    """How often the one side writes a checkpoint; a run that is not told otherwise does so every 300 s."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        bench = keeping.KeepingBench(self.seconds_per_run, self.repetitions, self.checkpoint_every_seconds)
        provenance = Provenance.take()
        pairs = keeping.measure(bench)
        summary = keeping.summary(pairs)
        record = Record(
            name="keeping",
            command=bench_command("keeping", self),
            provenance=provenance,
            configs=bench.configs(),
            repetitions=keeping.repetitions(pairs),
            summary=summary,
            tables=[keeping.table(bench, summary)],
        )
        publish(record, self.output)
        return 0
