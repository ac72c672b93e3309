"""`htsrl bench recurrent`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from htsrl.errors import ConfigError
from htsrl_bench import recurrent
from htsrl_bench.command_line import bench_command
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, publish


@dataclass(frozen=True)
class RecurrentTable:
    """Throughput of recurrent policies against that of the same policies without a recurrent core."""

    work: tuple[str, ...] = tuple(recurrent.WORK)
    """What is trained."""
    repetitions: int = 3
    """How often; all kinds take turns."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        unknown = [name for name in self.work if name not in recurrent.WORK]
        if unknown or not self.work or self.repetitions < 1:
            raise ConfigError(f"give work among {', '.join(map(repr, recurrent.WORK))}, and at least one repetition")
        provenance = Provenance.take()
        measured = recurrent.measure(self.work, self.repetitions)
        summary = recurrent.summary(measured)
        record = Record(
            name="recurrent",
            command=bench_command("recurrent", self),
            provenance=provenance,
            configs=recurrent.configs(self.work),
            repetitions=[asdict(of) for of in measured],
            summary=summary,
            tables=[recurrent.table(summary)],
        )
        publish(record, self.output)
        return 0
