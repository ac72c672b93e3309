"""`htsrl bench peers`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from htsrl.bench.command_line import bench_command
from htsrl.bench.peers.comparison import PeersBench, install, measure, rows
from htsrl.bench.peers.environments import default_folder
from htsrl.bench.peers.frameworks import PEERS
from htsrl.bench.peers.table import tables
from htsrl.bench.peers.work import WORK, check_simulator, htsrl_config, job
from htsrl.bench.provenance import Provenance
from htsrl.bench.record import Record, publish
from htsrl.errors import ConfigError


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
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        for name in self.peers:
            if name not in PEERS:
                raise ConfigError(f"peer {name!r} is not known; choose among {', '.join(PEERS)}")
        peers = {name: PEERS[name] for name in self.peers}
        bench = PeersBench(self.work, peers, self.repetitions, self.seconds_per_run, self.venvs)
        for name in self.work:
            check_simulator(name)
        installed = install(bench)
        provenance = Provenance.take()  # after the installations, which keep the machine busy
        measured = measure(bench, installed)
        found = rows(bench, measured)
        versions = {package: of for own in installed.versions.values() for package, of in own.items()}
        record = Record(
            name="peers",
            command=bench_command("peers", self),
            provenance=replace(provenance, versions={**versions, **provenance.versions}),
            configs={name: htsrl_config(name) for name in self.work},
            repetitions=[asdict(run) for run in measured],
            summary={
                "work": {row.work: row.document() for row in found},
                "jobs": {name: job(name) for name in self.work},
                "versions": installed.versions,
            },
            tables=tables(bench, found),
        )
        publish(record, self.output)
        return 0
