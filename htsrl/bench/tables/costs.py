"""`htsrl bench costs`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from htsrl.bench import costs
from htsrl.bench.command_line import bench_command
from htsrl.bench.provenance import Provenance
from htsrl.bench.record import Record, publish
from htsrl.errors import ConfigError


@dataclass(frozen=True)
class CostsTable:
    """CPU time of one step, split into simulator, inference, learning and overhead."""

    work: tuple[str, ...] = tuple(costs.WORK)
    """What is measured; leave out what needs a simulator that is not installed."""
    repetitions: int = 3
    """How often; the works take turns."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        if not self.work or self.repetitions < 1:
            raise ConfigError("give at least one work and one repetition")
        provenance = Provenance.take()
        measured = costs.measure(self.work, self.repetitions)
        summary = costs.summary(self.work, measured)
        record = Record(
            name="costs",
            command=bench_command("costs", self),
            provenance=provenance,
            configs=costs.configs(self.work),
            repetitions=[asdict(of) for of in measured],
            summary=summary,
            tables=[costs.table(summary)],
        )
        publish(record, self.output)
        return 0
