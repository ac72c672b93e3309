"""`htsrl bench language-bits`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from htsrl_bench.announcer import Announcer
from htsrl_bench.command_line import bench_command
from htsrl_bench.language.bits import GROUPS, compare_all, table
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, publish


@dataclass(frozen=True)
class LanguageBitsTable:
    """Runs on text in one process, several, with sleeps and resumes: exit code 1 where a bit differs."""

    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        provenance = Provenance.take()
        with TemporaryDirectory(prefix="htsrl-bench-") as folder:
            compared = compare_all(Path(folder), Announcer(len(GROUPS)))
        equal = sum(run.is_equal for run in compared)
        killed = sum(run.restarts for run in compared)
        record = Record(
            name="language-bits",
            command=bench_command("language-bits", self),
            provenance=provenance,
            configs={},
            repetitions=[asdict(run) for run in compared],
            summary={
                "runs": len(compared),
                "equal": equal,
                "killed": killed,
                "highlights": {
                    "runs on text, against the first of their group": (
                        f"{equal} of {len(compared)} equal, {killed} processes killed"
                    )
                },
            },
            tables=[table(compared)],
        )
        publish(record, self.output)
        return 0 if equal == len(compared) else 1
