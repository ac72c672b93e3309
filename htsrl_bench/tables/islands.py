"""`htsrl bench islands`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from htsrl.cluster.connection import is_installed
from htsrl.errors import ConfigError
from htsrl_bench import islands
from htsrl_bench.announcer import Announcer
from htsrl_bench.command_line import bench_command
from htsrl_bench.islands import WAYS, scaling_name, sleeping_config, work_config, work_name
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, Summary, Table, publish
from htsrl_bench.works import missing_note, split_by_installed


@dataclass(frozen=True)
class IslandsTable:
    """Islands of environments that sleep, one, two and four of them, and what travels for environments that do not."""

    islands: tuple[int, ...] = (1, 2, 4)
    """How many, of 32 environments each."""
    mean_seconds: tuple[float, ...] = (0.005, 0.02)
    """How long a step sleeps on average."""
    seconds_per_run: float = 6.0
    """About how long each run of environments that sleep is measured."""
    work: tuple[str, ...] = ("pong-ppo", "football-ppo")
    """What is compared with the same run without islands."""
    num_updates: int = 4
    """Of each work, measured."""
    repetitions: int = 2
    """Runs of each kind, with seeds 1, 2, 3 ...; the kinds take turns."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        if not is_installed():
            raise ConfigError("bench islands needs Ray, which is not installed; pip install 'htsrl[ray]'")
        if self.repetitions < 1 or not self.islands or not self.mean_seconds:
            raise ConfigError("repetitions must be at least 1, and islands and mean_seconds name one or more")
        provenance = Provenance.take()
        provenance.versions["ray"] = version("ray")
        works, missing = split_by_installed(self.work) if self.work else ((), ())
        scaling = {
            scaling_name(count, mean): sleeping_config(count, mean, self.seconds_per_run)
            for mean in self.mean_seconds
            for count in self.islands
        }
        at_work = {work_name(work, way): work_config(work, way, self.num_updates) for work in works for way in WAYS}
        configs = scaling | at_work
        measured = islands.measure(configs, self.repetitions, Announcer(self.repetitions * len(configs)))
        tables = [islands.scaling_table(measured, self.islands, self.mean_seconds)]
        if works:
            table = islands.work_table(measured, works)
            tables.append(Table(table.headings, table.rows, [*table.notes, *missing_note(missing)]))
        record = Record(
            name="islands",
            command=bench_command("islands", self),
            provenance=provenance,
            configs=configs,
            repetitions=[asdict(run) for run in measured],
            summary={
                "steps_per_second": {name: asdict(Summary.of(islands.speeds(measured, name))) for name in configs},
                "highlights": islands.highlights(measured, configs),
            },
            tables=tables,
        )
        publish(record, self.output)
        return 0
