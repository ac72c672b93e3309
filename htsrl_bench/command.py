"""`htsrl bench`: a subcommand for every table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from htsrl_bench.peers.command import PeersTable
from htsrl_bench.tables.atari_step import AtariStepTable
from htsrl_bench.tables.chaos import ChaosTable
from htsrl_bench.tables.costs import CostsTable
from htsrl_bench.tables.dashboard import DashboardTable
from htsrl_bench.tables.determinism import DeterminismTable
from htsrl_bench.tables.keeping import KeepingTable
from htsrl_bench.tables.lag import LagTable
from htsrl_bench.tables.learning import LearningTable
from htsrl_bench.tables.limits import LimitsTable
from htsrl_bench.tables.recurrent import RecurrentTable
from htsrl_bench.tables.report import ReportTable
from htsrl_bench.tables.restart import RestartTable
from htsrl_bench.tables.runs import RunsTable
from htsrl_bench.tables.sleeping import SleepingTable
from htsrl_bench.tables.soak import SoakTable
from htsrl_bench.tables.throughput import ThroughputTable
from htsrl_bench.tables.variance import VarianceTable


@dataclass(frozen=True)
class Bench:
    """Measure, print a table and write down how it came about."""

    table: (
        Annotated[SleepingTable, tyro.conf.subcommand("sleeping")]
        | Annotated[LearningTable, tyro.conf.subcommand("learning")]
        | Annotated[LagTable, tyro.conf.subcommand("lag")]
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
        | Annotated[RecurrentTable, tyro.conf.subcommand("recurrent")]
        | Annotated[DashboardTable, tyro.conf.subcommand("dashboard")]
        | Annotated[RunsTable, tyro.conf.subcommand("runs")]
        | Annotated[ReportTable, tyro.conf.subcommand("report")]
    )

    def run(self) -> int:
        return self.table.run()
