"""`htsrl bench watching`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from htsrl_bench import watching
from htsrl_bench.command_line import bench_command
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, publish


@dataclass(frozen=True)
class WatchingTable:
    """Throughput with console, TensorBoard, timeline, dashboard and evaluation, against a run that shows nothing."""

    work: tuple[str, ...] = ("cartpole-ppo", "pong-a2c")
    """What is trained."""
    steps_per_run: tuple[int, ...] = (600_000, 60_000)
    """Environment steps of a run, a number for each work."""
    eval_every: int = 50_000
    """Steps between evaluations."""
    sides: tuple[str, ...] = watching.SIDES
    """What is compared; off has to be among them."""
    repetitions: int = 5
    """How often each side has its turn."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        bench = watching.WatchingBench(self.work, self.steps_per_run, self.eval_every, self.repetitions, self.sides)
        provenance = Provenance.take()
        watched = watching.measure(bench)
        for work, own in watching.summary(watched).items():
            record = Record(
                name=f"watching-{work}",
                command=bench_command("watching", self),
                provenance=provenance,
                configs=bench.configs(work),
                repetitions=watching.repetitions([of for of in watched if of.work == work]),
                summary=own,
                tables=[watching.table(bench, work, own)],
            )
            publish(record, self.output)
        return 0
