"""`htsrl bench restart`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from htsrl_bench import restart
from htsrl_bench.command_line import bench_command
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, publish


@dataclass(frozen=True)
class RestartTable:
    """How long a run of Pong stands still when one of its executors is killed."""

    kills: int = 10
    """How many, one after another."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        provenance = Provenance.take()
        measured = restart.measure(self.kills)
        document = restart.summary(measured)
        record = Record(
            name="restart",
            command=bench_command("restart", self),
            provenance=provenance,
            configs={"pong": restart.config()},
            repetitions=restart.repetitions(measured),
            summary=document,
            tables=[restart.table(document, measured)],
        )
        publish(record, self.output)
        return 0
