"""`htsrl bench learning`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

import tyro

from htsrl.config import Placement
from htsrl.errors import ConfigError
from htsrl_bench.announcer import Announcer
from htsrl_bench.command_line import bench_command
from htsrl_bench.curves import draw_curves
from htsrl_bench.finished_runs import FinishedRuns
from htsrl_bench.learned import Learned
from htsrl_bench.learning import Learning, tables
from htsrl_bench.peers.environments import default_folder
from htsrl_bench.peers.failures import PeerFailed
from htsrl_bench.peers.frameworks import OFF_POLICY
from htsrl_bench.peers.sb3_learning import SB3, StableBaselines
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, publish
from htsrl_bench.tasks import QUICK_TASKS, TASKS, Task
from htsrl_bench.verdict import Verdict
from htsrl_bench.ways import WAYS

WAYS_HELP = (
    f"In which ways: {', '.join(WAYS)}; lag-K is hts with a lag of K; {SB3} is Stable-Baselines3's SAC with the same "
    f"settings, for {', '.join(OFF_POLICY)}."
)


@dataclass(frozen=True)
class LearningTable:
    """Learning curves under hts, sync and others, several seeds each, with the commands that repeat them."""

    tasks: Annotated[tuple[str, ...], tyro.conf.arg(help=f"Which tasks: {', '.join(TASKS)}.")] = QUICK_TASKS
    ways: Annotated[tuple[str, ...], tyro.conf.arg(help=WAYS_HELP)] = ("hts", "sync")
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    """A run in each way for every seed."""
    placement: Literal["inline", "processes"] = "processes"
    """Where the roles live. The results are the same, but of async, which has next to no lag inline."""
    finished_runs: Path | None = None
    """Folder in which runs are kept: the same command continues after those that have finished, and with the one that
    was interrupted."""
    venvs: Path = field(default_factory=default_folder)
    """Folder where the virtual environment for sb3 is made, and found by the next time."""
    output: Path = Path("benchmarks")
    """Folder for a record and a picture of each task."""

    def run(self) -> int:
        tasks = [_task(name) for name in self.tasks]
        if not tasks or not self.seeds or not self.ways:
            raise ConfigError("give at least one task, one way and one seed")
        provenance, placement = Provenance.take(), Placement(backend=self.placement, tensorboard=False)
        finished = FinishedRuns(self.finished_runs)
        learning = Learning(self.ways, self.seeds, placement, finished, stable_baselines=self._stable_baselines(tasks))
        for task, way, seed in product(tasks, self.ways, self.seeds):
            learning.found(task, way, seed)  # one that must not be taken is refused before the first is trained
        finished.prepare()
        announcer = Announcer(len(tasks) * len(self.seeds) * len(self.ways))
        for task in tasks:  # each is written as soon as it is done: the next may take an hour
            learned = learning.learn(task, announcer)
            record = self._record(task, learned, learning, provenance)
            publish(record, self.output, partial(draw_curves, task.name, task.goal, learned))
        return 0

    def _stable_baselines(self, tasks: Sequence[Task]) -> StableBaselines | None:
        if SB3 not in self.ways:
            return None
        for task in tasks:
            if task.name not in OFF_POLICY:
                raise ConfigError(f"way sb3 knows the tasks {', '.join(OFF_POLICY)}, not {task.name}; leave it out")
        try:
            return StableBaselines.prepared(self.venvs)
        except PeerFailed as failure:
            raise ConfigError(f"way sb3 needs Stable-Baselines3: {failure}") from None

    def _record(self, task: Task, learned: list[Learned], learning: Learning, provenance: Provenance) -> Record:
        configs = {way: learning.config(task, way, self.seeds[0]) for way in self.ways}
        return Record(
            name=f"learning-{task.name}",
            command=bench_command("learning", self),
            provenance=provenance,
            configs=configs,
            repetitions=[run.document() for run in learned],
            summary=Verdict.of(task.goal, learned).document(),
            tables=tables(task.goal, learned),
        )


def _task(name: str) -> Task:
    if name not in TASKS:
        raise ConfigError(f"task {name!r} is not known; choose among {', '.join(TASKS)}")
    return TASKS[name]
