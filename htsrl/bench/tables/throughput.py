"""`htsrl bench throughput`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from htsrl.bench import throughput
from htsrl.bench.bars import draw_throughput
from htsrl.bench.command_line import bench_command
from htsrl.bench.provenance import Provenance
from htsrl.bench.record import Record, publish
from htsrl.bench.works import WORKS, known, missing_note, split_by_installed


@dataclass(frozen=True)
class ThroughputTable:
    """Steps per second, CPU time and memory of every schedule, beside the roofline measured in the same session."""

    work: tuple[str, ...] = tuple(WORKS)
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
    """Folder for the record."""

    def run(self) -> int:
        known(self.work)
        here, missing = split_by_installed(self.work)
        bench = throughput.ThroughputBench(
            here, self.schedules, self.seconds_per_run, self.seconds_per_part, self.repetitions
        )
        provenance = Provenance.take()
        measured = throughput.measure(bench)
        summary = throughput.summary(bench, measured)
        record = Record(
            name="throughput",
            command=bench_command("throughput", self),
            provenance=provenance,
            configs=bench.configs(),
            repetitions=throughput.repetitions(measured),
            summary={"works": summary},
            tables=[throughput.table(bench, summary, missing_note(missing))],
        )
        publish(record, self.output, lambda picture: draw_throughput(summary, picture))
        return 0
