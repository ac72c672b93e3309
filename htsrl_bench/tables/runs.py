"""`htsrl bench runs`."""

from __future__ import annotations

import re
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from htsrl.errors import ConfigError
from htsrl_bench import runs
from htsrl_bench.curves import draw_runs
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, publish


@dataclass(frozen=True)
class RunsTable:
    """Write a record of runs that were trained before: score, curve, command and digest of each."""

    run_dirs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN_DIR")]
    """Folders of runs."""
    name: str
    """What to call the record."""
    episodes: int = 100
    """Episodes of the evaluation."""
    sampled: bool = False
    """Evaluate with sampled actions instead of the most likely ones."""
    output: Path = Path("benchmarks")
    """Folder for the record and its picture."""

    def run(self) -> int:
        if re.fullmatch(r"[A-Za-z0-9._-]+", self.name) is None:
            raise ConfigError(
                f"--name {self.name!r} becomes part of a file name; use letters, digits, '.', '_' and '-'"
            )
        recorded, configs = runs.read_runs(self.run_dirs, self.episodes, self.sampled)
        way = ["--sampled"] if self.sampled else []
        record = Record(
            name=f"runs-{self.name}",
            command=shlex.join(
                ["htsrl", "bench", "runs", "RUN_DIR...", "--name", self.name, "--episodes", str(self.episodes), *way]
            ),
            provenance=Provenance.take(),
            configs=configs,
            repetitions=[asdict(run) for run in recorded],
            summary={run.name: {"score": run.score, "training_last": run.last} for run in recorded},
            tables=runs.table(recorded, self.episodes, self.sampled),
        )
        publish(record, self.output, lambda picture: draw_runs(self.name, recorded, picture))
        return 0
