"""`htsrl bench staleness`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from htsrl_bench import staleness
from htsrl_bench.command_line import bench_command
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, publish


@dataclass(frozen=True)
class StalenessTable:
    """What limits on staleness discard, and how that shifts the episodes that are learned from: a simulation."""

    num_envs: int = 1024
    """Environments that play side by side."""
    mean_length: float = 100.0
    """Of an episode, in steps."""
    shape: float = 1.5
    """Of the Pareto law of lengths."""
    batch_steps: int = 20_480
    """Steps that a version is made from."""
    limits: tuple[int, ...] = (1, 2, 4, 8)
    """Versions that an episode may be old, a row each."""
    episodes: int = 100_000
    """Episodes in all."""
    seed: int = 1
    """Of the lengths."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        bench = staleness.StalenessBench(
            self.num_envs, self.mean_length, self.shape, self.batch_steps, self.limits, self.episodes, self.seed
        )
        provenance = Provenance.take()
        outcomes = staleness.run(bench)
        record = Record(
            name="staleness",
            command=bench_command("staleness", self),
            provenance=provenance,
            configs={},
            repetitions=[],
            summary=staleness.summary(outcomes),
            tables=[staleness.table(bench, outcomes)],
        )
        publish(record, self.output)
        return 0
