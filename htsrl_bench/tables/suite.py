"""`htsrl bench suite`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Literal

from htsrl.config import Config, Placement, available_cores
from htsrl.envs.make import make_env
from htsrl.errors import ConfigError
from htsrl_bench.announcer import Announcer
from htsrl_bench.command_line import bench_command
from htsrl_bench.finished_runs import FinishedRuns
from htsrl_bench.learning import Learning
from htsrl_bench.parallel_learning import LearningJob, learn_ahead
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, publish
from htsrl_bench.suite import SuiteTask, check_ways, suite_tasks
from htsrl_bench.suite_plot import draw_suite
from htsrl_bench.suite_verdict import BASELINE, TaskVerdict, run_document, summary, tables
from htsrl_bench.works import missing_note, split_by_installed


@dataclass(frozen=True)
class SuiteTable:
    """Which schedule and correction learns best, over tasks of many kinds and several seeds each."""

    tasks: tuple[str, ...] = ("all",)
    """Which tasks, by name, or those for `choosing`, for `confirming`, or `all`."""
    algo: Literal["ppo", "a2c"] = "ppo"
    """By which algorithm."""
    ways: tuple[str, ...] = ("sync", "hts")
    """In which ways, sync among them: hts, lag-K, and with another correction of the lag hts-recentered, hts-decoupled,
    hts-delayed-update, hts-uncorrected (PPO), hts-vtrace, hts-importance, hts-uncorrected (A2C)."""
    seeds: tuple[int, ...] = tuple(range(1, 11))
    """A run in each way for every seed."""
    max_steps: int | None = None
    """Environment steps after which a run ends that would have more. None: as many as the task has."""
    parallel: int | None = None
    """Runs at a time, each on one core. None: one per core."""
    finished_runs: Path = Path("runs/suite")
    """Folder in which runs are kept: the same command continues after those that have finished."""
    output: Path = Path("benchmarks")
    """Folder for the record and its picture."""

    def run(self) -> int:
        tasks, missing = self._tasks()
        provenance, finished = Provenance.take(), FinishedRuns(self.finished_runs)
        placement = Placement(backend="inline", tensorboard=False, check_env=False)
        learning = Learning(self.ways, self.seeds, placement, finished, evaluation_episodes=10)
        jobs = [LearningJob(task, way, seed) for seed, task, way in product(self.seeds, tasks, self.ways)]
        for task in tasks:  # what cannot work is refused before the first is trained; `learn_ahead` looks at settings
            make_env(task.experiment.env, task.experiment.env_args, task.experiment.imports).close()
        finished.prepare()
        learn_ahead(learning, jobs, self.parallel or available_cores())
        announcer = Announcer(len(jobs))
        learned = {task.name: learning.learn(task, announcer) for task in tasks}
        verdicts = [TaskVerdict.of(name, runs) for name, runs in learned.items()]
        record = Record(
            name=f"suite-{self.algo}{'' if self.tasks == ('all',) else '-' + '-'.join(self.tasks)}",
            command=bench_command("suite", self),
            provenance=provenance,
            configs={
                f"{task.name}, {way}": Config(task.with_seed(self.seeds[0], way)) for task in tasks for way in self.ways
            },
            repetitions=[run_document(name, run) for name, runs in learned.items() for run in runs],
            summary=summary(verdicts, self.ways),
            tables=tables(verdicts, self.ways, missing_note(missing)),
        )
        publish(record, self.output, partial(draw_suite, record.name, verdicts, self.ways))
        return 0

    def _tasks(self) -> tuple[list[SuiteTask], Sequence[str]]:
        """Those that are learned, and the names of those whose simulator is missing."""
        tasks = suite_tasks(self.tasks, self.algo)
        if not tasks or not self.seeds or BASELINE not in self.ways:
            raise ConfigError(f"give at least one task and one seed, and {BASELINE} among the ways")
        check_ways(self.ways, self.algo)
        here, missing = split_by_installed([task.name for task in tasks])
        return [task.with_at_most(self.max_steps) for task in tasks if task.name in here], missing
