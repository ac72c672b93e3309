"""`htsrl bench offline`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from htsrl_bench.command_line import bench_command
from htsrl_bench.offline import ALGORITHMS, DATASETS, OfflineBench, highlights, table
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, publish


@dataclass(frozen=True)
class OfflineTable:
    """Behaviour cloning, CQL and IQL on Pendulum, from episodes of a policy, of random actions and of both."""

    algorithms: tuple[str, ...] = tuple(ALGORITHMS)
    """Which of them."""
    seeds: int = 5
    """Runs of each algorithm on each dataset."""
    behaviour_steps: int = 5_000
    """Steps of SAC before its policy plays for the dataset."""
    episodes: int = 20
    """Of the policy and of random actions in the datasets, and of every evaluation."""
    gradient_steps: int = 10_000
    """Of every run."""
    work: Path = Path("runs/offline")
    """Folder for datasets and runs; what is there already is not made again."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        sizes = self.seeds, self.behaviour_steps, self.episodes, self.gradient_steps
        bench, provenance = OfflineBench(self.algorithms, *sizes, self.work), Provenance.take()
        learned = bench.learn()
        record = Record(
            name="offline",
            command=bench_command("offline", self),
            provenance=provenance,
            configs={f"{x} from {data}": bench.config(x, data, 1) for x in self.algorithms for data in DATASETS},
            repetitions=[asdict(run) for run in learned],
            summary={
                "highlights": highlights(bench, learned),
                "datasets": {name: list(bench.dataset(name).manifest.origins) for name in DATASETS},
            },
            tables=[table(bench, learned)],
        )
        publish(record, self.output)
        return 0
