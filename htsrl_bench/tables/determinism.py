"""`htsrl bench determinism`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from htsrl_bench import determinism
from htsrl_bench.command_line import bench_command
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, show, write_record
from htsrl_bench.works import known, split_by_installed


@dataclass(frozen=True)
class DeterminismTable:
    """Throughput with reference shapes and digest, against runs that batch freely and hash nothing."""

    work: tuple[str, ...] = ("pong-a2c", "pong-ppo", "cartpole-ppo")
    """What is trained."""
    seconds_per_run: float = 15.0
    """How long each run is measured once it is under way; longer where updates are slow."""
    repetitions: int = 5
    """Pairs of runs for each work; they take turns."""
    output: Path = Path("benchmarks")
    """Folder for the records, one of each work."""

    def run(self) -> int:
        known(self.work)
        here, _ = split_by_installed(self.work)
        bench = determinism.DeterminismBench(here, self.seconds_per_run, self.repetitions)
        provenance = Provenance.take()
        pairs = determinism.measure(bench)
        paths = [self._write(replace(bench, work=(work,)), pairs, provenance) for work in here]
        show(determinism.table(bench, determinism.summary(pairs)), paths)
        return 0

    def _write(
        self, bench: determinism.DeterminismBench, pairs: Sequence[determinism.Pair], provenance: Provenance
    ) -> Path:
        """A record of one work: the next measurement of it takes its place, and leaves the others alone."""
        (work,) = bench.work
        own = [pair for pair in pairs if pair.work == work]
        summary = determinism.summary(own)
        record = Record(
            name=f"determinism-{work}",
            command=bench_command("determinism", self),
            provenance=provenance,
            configs=bench.configs(),
            repetitions=determinism.repetitions(own),
            summary=summary,
            tables=[determinism.table(bench, summary)],
        )
        return write_record(record, self.output)
