"""`htsrl bench limits`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from htsrl.config import Config
from htsrl_bench import limits
from htsrl_bench.bars import draw_limits
from htsrl_bench.command_line import bench_command
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, show, write_record
from htsrl_bench.works import STANDARD, WORKS, known, missing_note, split_by_installed


@dataclass(frozen=True)
class LimitsTable:
    """What simulator, inference, learning and a hand-over cost alone, and the steps per second that follow."""

    work: tuple[str, ...] = tuple(STANDARD)
    """Whose parts; what needs a simulator that is not installed is left out and reported."""
    seconds_per_part: float = 2.0
    """How long a part is measured each time."""
    repetitions: int = 3
    """How often; all parts take turns."""
    output: Path = Path("benchmarks")
    """Folder for the records, one of each work."""

    def run(self) -> int:
        known(self.work)
        here, missing = split_by_installed(self.work)
        bench = limits.LimitsBench(here, self.seconds_per_part, self.repetitions)
        provenance = Provenance.take()
        measured = limits.measure(bench)
        paths = [self._write(replace(bench, work=(work,)), measured.about(work), provenance) for work in here]
        show(limits.tables(limits.summary(bench, measured), missing_note(missing))[0], paths)
        return 0

    def _write(self, bench: limits.LimitsBench, measured: limits.Limits, provenance: Provenance) -> Path:
        """A record of one work: the next measurement of it takes its place, and leaves the others alone."""
        (work,) = bench.work
        summary = limits.summary(bench, measured)
        record = Record(
            name=f"limits-{work}",
            command=bench_command("limits", self),
            provenance=provenance,
            configs={work: Config(WORKS[work])},
            repetitions=limits.repetitions(measured),
            summary=summary,
            tables=limits.tables(summary),
        )
        return write_record(record, self.output, lambda picture: draw_limits(summary, picture))
