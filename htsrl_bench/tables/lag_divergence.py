"""`htsrl bench lag-divergence`."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path

from htsrl.config.check import check
from htsrl.errors import ConfigError
from htsrl_bench.announcer import Announcer
from htsrl_bench.command_line import bench_command
from htsrl_bench.lag_divergence import TASKS, LagPoint, measured, summary, tables
from htsrl_bench.lag_probe import GRADIENT_COSINE
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, publish


@dataclass(frozen=True)
class LagDivergenceTable:
    """How far the version that an update of PPO starts from is from the one that made its data."""

    tasks: tuple[str, ...] = tuple(TASKS)
    """Which tasks."""
    minibatches: tuple[int, ...] = (4, 8, 16, 32)
    """Of each of ten epochs; every minibatch is an optimizer step."""
    seeds: tuple[int, ...] = (1, 2)
    """A run for every seed."""
    updates: int = 12
    """Of a run; the first, which has no lag, does not count."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        if unknown := [task for task in self.tasks if task not in TASKS]:
            raise ConfigError(f"task {unknown[0]!r} is not known; choose among {', '.join(TASKS)}")
        grid = product(self.tasks, self.minibatches, self.seeds)
        points = [LagPoint(task, pieces, seed, self.updates) for task, pieces, seed in grid]
        if not points or self.updates < 2:
            raise ConfigError("give at least one task, one number of minibatches, one seed and two updates")
        for point in points:
            check(point.config())
        provenance, announcer, runs = Provenance.take(), Announcer(len(points)), []
        for point in points:
            announcer.begin(f"{point.task}, {point.optimizer_steps} optimizer steps, seed {point.seed}")
            runs.append(measured(point))
            announcer.end(f"cosine {runs[-1][GRADIENT_COSINE]:.3f}")
        record = Record(
            name="lag-divergence",
            command=bench_command("lag-divergence", self),
            provenance=provenance,
            configs={f"{point.task}, {point.optimizer_steps}": point.config() for point in points},
            repetitions=runs,
            summary=summary(runs),
            tables=tables(runs),
        )
        publish(record, self.output)
        return 0
