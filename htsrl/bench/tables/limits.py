"""`htsrl bench limits`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from htsrl.bench import limits
from htsrl.bench.bars import draw_limits
from htsrl.bench.command_line import bench_command
from htsrl.bench.provenance import Provenance
from htsrl.bench.record import Record, publish
from htsrl.bench.works import WORKS, known, missing_note, split_by_installed
from htsrl.config import Config


@dataclass(frozen=True)
class LimitsTable:
    """What simulator, inference, learning and a hand-over cost alone, and the steps per second that follow."""

    work: tuple[str, ...] = tuple(WORKS)
    """Whose parts; what needs a simulator that is not installed is left out and reported."""
    seconds_per_part: float = 2.0
    """How long a part is measured each time."""
    repetitions: int = 3
    """How often; all parts take turns."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        known(self.work)
        here, missing = split_by_installed(self.work)
        bench = limits.LimitsBench(here, self.seconds_per_part, self.repetitions)
        provenance = Provenance.take()
        measured = limits.measure(bench)
        summary = limits.summary(bench, measured)
        record = Record(
            name="limits",
            command=bench_command("limits", self),
            provenance=provenance,
            configs={work: Config(WORKS[work]) for work in here},
            repetitions=limits.repetitions(measured),
            summary=summary,
            tables=limits.tables(summary, missing_note(missing)),
        )
        publish(record, self.output, lambda picture: draw_limits(summary, picture))
        return 0
