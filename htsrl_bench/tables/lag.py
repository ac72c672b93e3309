"""`htsrl bench lag`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Literal

from htsrl.config import Config, Placement
from htsrl.errors import ConfigError
from htsrl_bench.announcer import Announcer
from htsrl_bench.command_line import bench_command
from htsrl_bench.curves import draw_lags
from htsrl_bench.finished_runs import FinishedRuns
from htsrl_bench.lag_learning import LAG_TASKS, LagTask, lag_rows, summary, tables, way_of
from htsrl_bench.learned import Learned
from htsrl_bench.learning import Learning
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, publish


@dataclass(frozen=True)
class LagTable:
    """Return per step against the lag between acting and learning, several seeds each."""

    tasks: tuple[str, ...] = tuple(LAG_TASKS)
    """Which tasks."""
    lags: tuple[int, ...] = (0, 1, 2, 4)
    """Versions between acting and learning; each is compared with the first."""
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    """A run with each lag for every seed."""
    episodes: int = 10
    """Of the final policy's evaluation."""
    placement: Literal["inline", "processes"] = "inline"
    """Where the roles live; the results are the same. Inline takes one core."""
    finished_runs: Path | None = None
    """Folder in which runs are kept: the same command continues after those that have finished, and with the one that
    was interrupted."""
    output: Path = Path("benchmarks")
    """Folder for a record and a picture of each task."""

    def run(self) -> int:
        tasks = [_task(name) for name in self.tasks]
        if not tasks or not self.seeds or not self.lags or min(self.lags) < 0:
            raise ConfigError("give at least one task and one seed, and lags of 0 or more")
        provenance, finished = Provenance.take(), FinishedRuns(self.finished_runs)
        ways, placement = tuple(map(way_of, self.lags)), Placement(backend=self.placement, tensorboard=False)
        learning = Learning(ways, self.seeds, placement, finished, self.episodes)
        for task, way, seed in product(tasks, ways, self.seeds):
            learning.found(task, way, seed)  # one that must not be taken is refused before the first is trained
        finished.prepare()
        announcer = Announcer(len(tasks) * len(self.seeds) * len(ways))
        for task in tasks:  # each is written as soon as it is done
            learned = learning.learn(task, announcer)
            draw = partial(draw_lags, task.name, lag_rows(self.lags, learned), learned)
            publish(self._record(task, learned, placement, provenance), self.output, draw)
        return 0

    def _record(self, task: LagTask, learned: list[Learned], placement: Placement, provenance: Provenance) -> Record:
        seed = self.seeds[0]
        return Record(
            name=f"lag-{task.name}",
            command=bench_command("lag", self),
            provenance=provenance,
            configs={way: Config(task.with_seed(seed, way), placement) for way in map(way_of, self.lags)},
            repetitions=[run.document() for run in learned],
            summary=summary(self.lags, learned),
            tables=tables(self.lags, learned, self.episodes),
        )


def _task(name: str) -> LagTask:
    if name not in LAG_TASKS:
        raise ConfigError(f"task {name!r} is not known; choose among {', '.join(LAG_TASKS)}")
    return LAG_TASKS[name]
