"""`htsrl bench waiting`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from htsrl_bench import waiting
from htsrl_bench.command_line import bench_command
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, publish


@dataclass(frozen=True)
class WaitingTable:
    """A thousand environments that wait, on threads, under every schedule; a record for each law of step times."""

    num_envs: int = 1024
    """Environments, on a thread each."""
    few_envs: int = 64
    """Environments of the run that theirs are compared with for memory."""
    mean_seconds: float = 0.05
    """How long a step sleeps on average."""
    law: waiting.Law = "exponential"
    """How the length of a step is distributed."""
    shape: float = 1.5
    """Of the Pareto law."""
    sync_interval: int = 20
    """Alpha."""
    schedules: tuple[waiting.Schedule, ...] = ("hts", "sync", "async", "lockstep")
    """Those that take turns."""
    seconds_per_run: float = 8.0
    """How long each run is measured at least; two updates in any case."""
    repetitions: int = 1
    """Runs of each kind, with seeds 1, 2, 3 ..."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        bench = waiting.WaitingBench(
            self.num_envs,
            self.few_envs,
            self.mean_seconds,
            self.law,
            self.shape,
            self.sync_interval,
            self.schedules,
            self.seconds_per_run,
            self.repetitions,
        )
        provenance = Provenance.take()
        found = waiting.digests(self.num_envs)
        measured = waiting.measure(bench)
        document = waiting.summary(bench, measured, found)
        record = Record(
            name=f"waiting-{self.law}",
            command=bench_command("waiting", self),
            provenance=provenance,
            configs=bench.configs(),
            repetitions=[asdict(run) for run in measured],
            summary=document,
            tables=[waiting.table(bench, document)],
        )
        publish(record, self.output)
        return 0
