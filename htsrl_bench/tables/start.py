"""`htsrl bench start`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from htsrl.config import Config
from htsrl_bench import start
from htsrl_bench.command_line import bench_command
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, publish


@dataclass(frozen=True)
class StartTable:
    """How long a run takes to its first step and its first update."""

    work: tuple[str, ...] = tuple(start.WORKS)
    """What is started."""
    repetitions: int = 5
    """How often; the works take turns."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        provenance = Provenance.take()
        found = start.measure(self.work, self.repetitions)
        document = start.summary(found)
        record = Record(
            name="start",
            command=bench_command("start", self),
            provenance=provenance,
            configs={work: Config(start.WORKS[work]) for work in self.work},
            repetitions=[asdict(of) for of in found],
            summary=document,
            tables=[start.table(document, self.repetitions)],
        )
        publish(record, self.output)
        return 0
