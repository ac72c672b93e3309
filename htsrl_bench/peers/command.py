"""`htsrl bench peers`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from htsrl.errors import ConfigError
from htsrl_bench.command_line import bench_command
from htsrl_bench.peers.comparison import Installed, Measured, PeersBench, install, measure, rows
from htsrl_bench.peers.environments import default_folder
from htsrl_bench.peers.frameworks import PEERS
from htsrl_bench.peers.table import tables
from htsrl_bench.peers.work import WORK, Precision, check_simulator, htsrl_config, job
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, show, write_record


def is_busy(provenance: Provenance) -> bool:
    """Whether others wanted all the cores just before: then the clock says little, and CPU time more."""
    return provenance.load_average > 4 * provenance.cores  # of the last minute: some may just have ended


@dataclass(frozen=True)
class PeersTable:
    """The same work in htsrl and in other frameworks, each in a virtual environment that is made for it."""

    work: tuple[str, ...] = tuple(WORK)
    """What is trained."""
    peers: tuple[str, ...] = tuple(PEERS)
    """In which frameworks besides htsrl."""
    repetitions: int = 3
    """How often; all take turns."""
    seconds_per_run: float = 10.0
    """How long each run is measured at least, once it is under way."""
    venvs: Path = field(default_factory=default_folder)
    """Folder where the virtual environments are made, and found by the next time."""
    precision: tuple[Precision, ...] = ("float32",)
    """In which htsrl multiplies, where there are images: bfloat16 beside float32 if both are named."""
    variants: tuple[str, ...] | None = None
    """Only these variants of the peers. None: all."""
    output: Path = Path("benchmarks")
    """Folder for the records, one of each work."""

    def run(self) -> int:
        for name in self.peers:
            if name not in PEERS:
                raise ConfigError(f"peer {name!r} is not known; choose among {', '.join(PEERS)}")
        peers = {name: PEERS[name] for name in self.peers}
        if "float32" not in self.precision:
            raise ConfigError("precision: give float32, or float32 and bfloat16, which is compared with it")
        bench = PeersBench(
            self.work, peers, self.repetitions, self.seconds_per_run, self.venvs, self.precision, self.variants
        )
        for name in self.work:
            check_simulator(name)
        installed = install(bench)
        provenance = Provenance.take()  # after the installations, which keep the machine busy
        measured = measure(bench, installed)
        versions = {package: of for own in installed.versions.values() for package, of in own.items()}
        everywhere = replace(provenance, versions={**versions, **provenance.versions})
        paths = [self._write(replace(bench, work=(work,)), measured, installed, everywhere) for work in self.work]
        show(tables(bench, rows(bench, measured))[0], paths)
        return 0

    def _write(
        self, bench: PeersBench, measured: Sequence[Measured], installed: Installed, provenance: Provenance
    ) -> Path:
        """A record of one work: the next measurement of it takes its place, and leaves the others alone."""
        (work,) = bench.work
        (row,) = found = rows(bench, measured)
        record = Record(
            name=f"peers-{work}",
            command=bench_command("peers", self),
            provenance=provenance,
            configs={work: htsrl_config(work)},
            repetitions=[asdict(run) for run in measured if run.work == work],
            summary={
                "work": {work: row.document()},
                "jobs": {work: job(work)},
                "versions": installed.versions,
                "busy": is_busy(provenance),
            },
            tables=tables(bench, found, is_busy(provenance)),
        )
        return write_record(record, self.output)
