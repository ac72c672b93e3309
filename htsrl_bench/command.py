"""`htsrl bench`: a subcommand for every table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from htsrl_bench.peers.command import PeersTable
from htsrl_bench.tables.atari_step import AtariStepTable
from htsrl_bench.tables.chaos import ChaosTable
from htsrl_bench.tables.checkouts import CheckoutsTable
from htsrl_bench.tables.costs import CostsTable
from htsrl_bench.tables.dashboard import DashboardTable
from htsrl_bench.tables.determinism import DeterminismTable
from htsrl_bench.tables.islands import IslandsTable
from htsrl_bench.tables.keeping import KeepingTable
from htsrl_bench.tables.lag import LagTable
from htsrl_bench.tables.lag_divergence import LagDivergenceTable
from htsrl_bench.tables.language import LanguageTable
from htsrl_bench.tables.language_bits import LanguageBitsTable
from htsrl_bench.tables.language_resume import LanguageResumeTable
from htsrl_bench.tables.language_speed import LanguageSpeedTable
from htsrl_bench.tables.language_verifiable import LanguageVerifiableTable
from htsrl_bench.tables.learning import LearningTable
from htsrl_bench.tables.limits import LimitsTable
from htsrl_bench.tables.offline import OfflineTable
from htsrl_bench.tables.plan import PlanTable
from htsrl_bench.tables.reactor import ReactorTable
from htsrl_bench.tables.recurrent import RecurrentTable
from htsrl_bench.tables.replay_buffer import ReplayBufferTable
from htsrl_bench.tables.report import ReportTable
from htsrl_bench.tables.restart import RestartTable
from htsrl_bench.tables.runs import RunsTable
from htsrl_bench.tables.sleeping import SleepingTable
from htsrl_bench.tables.soak import SoakTable
from htsrl_bench.tables.staleness import StalenessTable
from htsrl_bench.tables.start import StartTable
from htsrl_bench.tables.suite import SuiteTable
from htsrl_bench.tables.throughput import ThroughputTable
from htsrl_bench.tables.timeline_cost import TimelineTable
from htsrl_bench.tables.variance import VarianceTable
from htsrl_bench.tables.waiting import WaitingTable
from htsrl_bench.tables.watching import WatchingTable


@dataclass(frozen=True)
class Bench:
    """Measure, print a table and write down how it came about."""

    table: (
        Annotated[SleepingTable, tyro.conf.subcommand("sleeping")]
        | Annotated[LearningTable, tyro.conf.subcommand("learning")]
        | Annotated[SuiteTable, tyro.conf.subcommand("suite")]
        | Annotated[LagTable, tyro.conf.subcommand("lag")]
        | Annotated[LagDivergenceTable, tyro.conf.subcommand("lag-divergence")]
        | Annotated[LanguageTable, tyro.conf.subcommand("language")]
        | Annotated[LanguageBitsTable, tyro.conf.subcommand("language-bits")]
        | Annotated[LanguageResumeTable, tyro.conf.subcommand("language-resume")]
        | Annotated[LanguageSpeedTable, tyro.conf.subcommand("language-speed")]
        | Annotated[LanguageVerifiableTable, tyro.conf.subcommand("language-verifiable")]
        | Annotated[AtariStepTable, tyro.conf.subcommand("atari-step")]
        | Annotated[CheckoutsTable, tyro.conf.subcommand("checkouts")]
        | Annotated[CostsTable, tyro.conf.subcommand("costs")]
        | Annotated[LimitsTable, tyro.conf.subcommand("limits")]
        | Annotated[StalenessTable, tyro.conf.subcommand("staleness")]
        | Annotated[ThroughputTable, tyro.conf.subcommand("throughput")]
        | Annotated[StartTable, tyro.conf.subcommand("start")]
        | Annotated[SoakTable, tyro.conf.subcommand("soak")]
        | Annotated[PeersTable, tyro.conf.subcommand("peers")]
        | Annotated[VarianceTable, tyro.conf.subcommand("variance")]
        | Annotated[DeterminismTable, tyro.conf.subcommand("determinism")]
        | Annotated[ChaosTable, tyro.conf.subcommand("chaos")]
        | Annotated[PlanTable, tyro.conf.subcommand("plan")]
        | Annotated[OfflineTable, tyro.conf.subcommand("offline")]
        | Annotated[ReplayBufferTable, tyro.conf.subcommand("replay-buffer")]
        | Annotated[RestartTable, tyro.conf.subcommand("restart")]
        | Annotated[KeepingTable, tyro.conf.subcommand("keeping")]
        | Annotated[IslandsTable, tyro.conf.subcommand("islands")]
        | Annotated[ReactorTable, tyro.conf.subcommand("reactor")]
        | Annotated[RecurrentTable, tyro.conf.subcommand("recurrent")]
        | Annotated[DashboardTable, tyro.conf.subcommand("dashboard")]
        | Annotated[WaitingTable, tyro.conf.subcommand("waiting")]
        | Annotated[TimelineTable, tyro.conf.subcommand("timeline")]
        | Annotated[WatchingTable, tyro.conf.subcommand("watching")]
        | Annotated[RunsTable, tyro.conf.subcommand("runs")]
        | Annotated[ReportTable, tyro.conf.subcommand("report")]
    )

    def run(self) -> int:
        return self.table.run()
