"""`htsrl bench throughput`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from htsrl_bench import throughput
from htsrl_bench.bars import draw_throughput
from htsrl_bench.command_line import bench_command
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, show, write_record
from htsrl_bench.works import STANDARD, known, missing_note, split_by_installed


@dataclass(frozen=True)
class ThroughputTable:
    """Steps per second, CPU time and memory of every schedule, beside the roofline measured in the same session."""

    work: tuple[str, ...] = tuple(STANDARD)
    """What is trained; what needs a simulator that is not installed is left out and reported."""
    schedules: tuple[str, ...] = throughput.SCHEDULES
    """Under which schedules; they take turns. `hts-uncorrected` and the like are ways of `bench learning`."""
    seconds_per_run: float = 20.0
    """How long each run is measured once it is under way; longer where updates are slow."""
    seconds_per_part: float = 1.5
    """How long each part of the limit is measured, before and after the runs of a work."""
    repetitions: int = 3
    """How often."""
    output: Path = Path("benchmarks")
    """Folder for the records, one of each work."""

    def run(self) -> int:
        known(self.work)
        here, missing = split_by_installed(self.work)
        bench = throughput.ThroughputBench(
            here, self.schedules, self.seconds_per_run, self.seconds_per_part, self.repetitions
        )
        provenance = Provenance.take()
        measured = throughput.measure(bench)
        paths = [self._write(replace(bench, work=(work,)), measured, provenance) for work in here]
        show(throughput.table(bench, throughput.summary(bench, measured), missing_note(missing)), paths)
        return 0

    def _write(
        self, bench: throughput.ThroughputBench, measured: Sequence[throughput.Measured], provenance: Provenance
    ) -> Path:
        """A record of one work: the next measurement of it takes its place, and leaves the others alone."""
        (work,) = bench.work
        summary = throughput.summary(bench, measured)
        record = Record(
            name=f"throughput-{work}",
            command=bench_command("throughput", self),
            provenance=provenance,
            configs=bench.configs(),
            repetitions=throughput.repetitions([of for of in measured if of.work == work]),
            summary={"works": summary},
            tables=[throughput.table(bench, summary)],
        )
        return write_record(record, self.output, lambda picture: draw_throughput(summary, picture))
