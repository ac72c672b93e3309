"""`htsrl bench sleeping`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from htsrl.envs.check.claims import StepTime
from htsrl_bench import sleeping
from htsrl_bench.command_line import bench_command
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, publish


@dataclass(frozen=True)
class SleepingTable:
    """HTS against a barrier at every step, with environments that sleep, and Claim 1's bound."""

    seconds_per_run: float = 8.0
    """About how long each run is measured."""
    repetitions: int = 3
    """Runs of each kind, with seeds 1, 2, 3 ...; the kinds take turns."""
    num_envs: int = 16
    """Environments, each with an executor of its own."""
    intervals: tuple[int, ...] = (20, 128)
    """Sync intervals alpha, a row each."""
    mean_seconds: float = 0.005
    """How long a step sleeps on average."""
    law: Literal["exponential", "gamma"] = "exponential"
    """How the length of a step is distributed."""
    cv: float = 0.25
    """The gamma law's standard deviation over its mean."""
    algo: Literal["a2c", "ppo"] = "a2c"
    """What learns from the steps."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        bench = sleeping.SleepingBench(
            num_envs=self.num_envs,
            step_time=StepTime(self.mean_seconds, cv=1.0 if self.law == "exponential" else self.cv),
            law=self.law,
            algo=self.algo,
            intervals=self.intervals,
            seconds_per_run=self.seconds_per_run,
            repetitions=self.repetitions,
        )
        provenance = Provenance.take()
        measured = sleeping.measure(bench)
        rows = sleeping.rows(bench, measured)
        record = Record(
            name="sleeping",
            command=bench_command("sleeping", self),
            provenance=provenance,
            configs=bench.configs(),
            repetitions=[asdict(run) for run in measured],
            summary={f"alpha {row.sync_interval}": row.document() for row in rows},
            tables=[sleeping.table(bench, rows)],
        )
        publish(record, self.output)
        return 0
