"""`htsrl bench soak`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from htsrl.config import Config, Placement
from htsrl.errors import ConfigError
from htsrl_bench import soak
from htsrl_bench.command_line import bench_command
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, publish
from htsrl_bench.throughput import check_schedules
from htsrl_bench.ways import in_way
from htsrl_bench.works import WORKS, known, missing_note, split_by_installed


@dataclass(frozen=True)
class SoakTable:
    """Whether memory, file descriptors and files of a run grow, looked at for a long time."""

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
        configs = {f"{work}, {self.schedule}": soaked_config(work, self.schedule) for work in here}
        provenance = Provenance.take()
        soaked = soak.soak(configs, self.seconds)
        record = Record(
            name="soak",
            command=bench_command("soak", self),
            provenance=provenance,
            configs=configs,
            repetitions=soak.repetitions(soaked),
            summary={of.config: of.document() for of in soaked},
            tables=[soak.table(soaked, missing_note(missing)), soak.file_table(soaked)],
        )
        publish(record, self.output)
        return 0


def soaked_config(work: str, schedule: str) -> Config:
    """As anybody would run it, all that is shown included."""
    return Config(in_way(WORKS[work], schedule), Placement(eval_every=200_000, checkpoint_every_seconds=60.0))
