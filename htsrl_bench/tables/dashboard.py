"""`htsrl bench dashboard`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from htsrl_bench import dashboard
from htsrl_bench.command_line import bench_command
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, Summary, publish


@dataclass(frozen=True)
class DashboardTable:
    """How quick the dashboard is in a browser with many long runs."""

    num_runs: int = 100
    """Runs in the folder."""
    points: int = 1_000_000
    """Lines of each run's metrics."""
    repetitions: int = 3
    """Servers and pages, one after the other."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        bench = dashboard.DashboardBench(self.num_runs, self.points, self.repetitions)
        provenance = Provenance.take()
        seconds = dashboard.measure(bench)
        summary = {
            name: {**asdict(Summary.of(values)), "goal": dashboard.goal_of(name)} for name, values in seconds.items()
        }
        names, columns = list(seconds), zip(*seconds.values(), strict=True)
        record = Record(
            name="dashboard",
            command=bench_command("dashboard", self),
            provenance=provenance,
            configs={},
            repetitions=[dict(zip(names, values, strict=True)) for values in columns],
            summary=summary,
            tables=[dashboard.table(seconds, bench)],
        )
        publish(record, self.output)
        return 0
