"""`htsrl bench timeline`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from htsrl_bench import timeline_cost
from htsrl_bench.command_line import bench_command
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, publish


@dataclass(frozen=True)
class TimelineTable:
    """CPU time of a step with a timeline and without, two runs side by side."""

    work: tuple[str, ...] = ("cartpole-ppo", "pong-a2c")
    """What is trained."""
    steps_per_run: tuple[int, ...] = (102_400, 2_400)
    """Environment steps of a run, a number for each work."""
    repetitions: int = 9
    """How many pairs."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        bench = timeline_cost.TimelineBench(self.work, self.steps_per_run, self.repetitions)
        provenance = Provenance.take()
        pairs = timeline_cost.measure(bench)
        sides = (timeline_cost.WITHOUT, timeline_cost.WITH)
        found = timeline_cost.summary(pairs)
        record = Record(
            name="timeline",
            command=bench_command("timeline", self),
            provenance=provenance,
            configs={
                f"{work} {side}": timeline_cost.config_of(work, steps, side)
                for work, steps in zip(self.work, self.steps_per_run, strict=True)
                for side in sides
            },
            repetitions=[asdict(pair) for pair in pairs],
            summary=found,
            tables=[timeline_cost.table(bench, found)],
        )
        publish(record, self.output)
        return 0
