"""`htsrl bench`: a subcommand for every table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from htsrl.bench.peers.command import PeersTable
from htsrl.bench.tables.atari_step import AtariStepTable
from htsrl.bench.tables.chaos import ChaosTable
from htsrl.bench.tables.costs import CostsTable
from htsrl.bench.tables.determinism import DeterminismTable
from htsrl.bench.tables.keeping import KeepingTable
from htsrl.bench.tables.learning import LearningTable
from htsrl.bench.tables.limits import LimitsTable
from htsrl.bench.tables.memory import MemoryTable
from htsrl.bench.tables.report import ReportTable
from htsrl.bench.tables.restart import RestartTable
from htsrl.bench.tables.runs import RunsTable
from htsrl.bench.tables.sleeping import SleepingTable
from htsrl.bench.tables.soak import SoakTable
from htsrl.bench.tables.throughput import ThroughputTable
from htsrl.bench.tables.variance import VarianceTable


@dataclass(frozen=True)
class Bench:
    """Measure, print a table and write down how it came about."""

    table: (
        Annotated[SleepingTable, tyro.conf.subcommand("sleeping")]
        | Annotated[LearningTable, tyro.conf.subcommand("learning")]
        | Annotated[AtariStepTable, tyro.conf.subcommand("atari-step")]
        | Annotated[CostsTable, tyro.conf.subcommand("costs")]
        | Annotated[LimitsTable, tyro.conf.subcommand("limits")]
        | Annotated[ThroughputTable, tyro.conf.subcommand("throughput")]
        | Annotated[SoakTable, tyro.conf.subcommand("soak")]
        | Annotated[PeersTable, tyro.conf.subcommand("peers")]
        | Annotated[VarianceTable, tyro.conf.subcommand("variance")]
        | Annotated[DeterminismTable, tyro.conf.subcommand("determinism")]
        | Annotated[ChaosTable, tyro.conf.subcommand("chaos")]
        | Annotated[RestartTable, tyro.conf.subcommand("restart")]
        | Annotated[KeepingTable, tyro.conf.subcommand("keeping")]
        | Annotated[MemoryTable, tyro.conf.subcommand("memory")]
        | Annotated[RunsTable, tyro.conf.subcommand("runs")]
        | Annotated[ReportTable, tyro.conf.subcommand("report")]
    )

    def run(self) -> int:
        return self.table.run()
