"""`htsrl bench plan`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from htsrl.config import Config
from htsrl_bench import plan
from htsrl_bench.command_line import bench_command
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, publish


@dataclass(frozen=True)
class PlanTable:
    """What the planner predicts against what runs come to, on several kinds of work."""

    work: tuple[str, ...] = tuple(plan.KINDS)
    """Kinds of work."""
    seconds_per_run: float = 8.0
    """About how long each run is measured."""
    plan_seconds: float = 4.0
    """About how long the planner measures."""
    repetitions: int = 1
    """Times that everything is done."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        bench = plan.PlanBench(self.work, self.seconds_per_run, self.plan_seconds, self.repetitions)
        provenance = Provenance.take()
        measured = plan.measure(bench)
        document = plan.summary(bench, measured)
        record = Record(
            name="plan",
            command=bench_command("plan", self),
            provenance=provenance,
            configs={work: Config(plan.KINDS[work]) for work in self.work},
            repetitions=[asdict(run) for run in measured],
            summary=document,
            tables=[plan.table(document)],
        )
        publish(record, self.output)
        return 0
