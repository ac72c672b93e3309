"""`htsrl bench soak`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from htsrl.errors import ConfigError
from htsrl_bench import soak
from htsrl_bench.command_line import bench_command
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, publish
from htsrl_bench.throughput import check_schedules, watched_config
from htsrl_bench.works import known, missing_note, split_by_installed


@dataclass(frozen=True)
class SoakTable:
    """Whether the memory of a run grows: all its processes, looked at for a long time."""

    work: tuple[str, ...] = ("pong-a2c", "cartpole-ppo")
    """What is trained."""
    schedule: str = "hts"
    """Under which schedule."""
    seconds: float = 600.0
    """How long each run is looked at once it is under way."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        known(self.work)
        check_schedules((self.schedule,))
        if not self.seconds > 0:
            raise ConfigError(f"seconds={self.seconds} must be above 0")
        here, missing = split_by_installed(self.work)
        configs = {f"{work}, {self.schedule}": watched_config(work, self.schedule) for work in here}
        provenance = Provenance.take()
        soaked = soak.soak(configs, self.seconds)
        record = Record(
            name="soak",
            command=bench_command("soak", self),
            provenance=provenance,
            configs=configs,
            repetitions=soak.repetitions(soaked),
            summary={of.config: of.document() for of in soaked},
            tables=[soak.table(soaked, missing_note(missing))],
        )
        publish(record, self.output)
        return 0
