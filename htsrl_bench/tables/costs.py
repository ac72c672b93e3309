"""`htsrl bench costs`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from htsrl.errors import ConfigError
from htsrl_bench import costs
from htsrl_bench.command_line import bench_command
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, show, write_record


@dataclass(frozen=True)
class CostsTable:
    """CPU time of one step, split into simulator, inference, learning and overhead."""

    work: tuple[str, ...] = tuple(costs.STANDARD)
    """What is measured; leave out what needs a simulator that is not installed."""
    repetitions: int = 3
    """How often; the works take turns."""
    output: Path = Path("benchmarks")
    """Folder for the records, one of each work."""

    def run(self) -> int:
        if not self.work or self.repetitions < 1:
            raise ConfigError("give at least one work and one repetition")
        provenance = Provenance.take()
        measured = costs.measure(self.work, self.repetitions)
        summary = costs.summary(self.work, measured)
        paths = [self._write(work, {work: summary[work]}, measured, provenance) for work in self.work]
        show(costs.table(summary), paths)
        return 0

    def _write(
        self, work: str, summary: Mapping[str, Any], measured: Sequence[costs.Costs], provenance: Provenance
    ) -> Path:
        """A record of one work: the next measurement of it takes its place, and leaves the others alone."""
        record = Record(
            name=f"costs-{work}",
            command=bench_command("costs", self),
            provenance=provenance,
            configs=costs.configs([work]),
            repetitions=[asdict(of) for of in measured if of.work == work],
            summary=summary,
            tables=[costs.table(summary)],
        )
        return write_record(record, self.output)
