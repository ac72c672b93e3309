"""Several seeds of one experiment as a group: GROUP/seed-1, GROUP/seed-2 ..., each the run it would be alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from htsrl.config import Config, with_seed
from htsrl.config.check import check
from htsrl.errors import HtsrlError
from htsrl.metrics.readings import counted
from htsrl.metrics.result import RunResult
from htsrl.metrics.returns import last_step
from htsrl.plain_files import read_document
from htsrl.runs.folder import RunFolder
from htsrl.statistics.intervals import Interval, mean_interval
from htsrl.sweeps.job import JobEnd, JobProcess, TrainJob
from htsrl.sweeps.pool import Budget, Launch, Pool
from htsrl.sweeps.seeds import shown_seeds
from htsrl.sweeps.table import Table

LOOK_SECONDS = 0.5
GROUP_FILE = "group.json"


@dataclass(frozen=True)
class Group:
    """What is trained with several seeds."""

    job: TrainJob
    """Of any of them; the seed and the folder are set for each."""
    seeds: tuple[int, ...]
    folder: Path

    def job_of(self, seed: int, budget: Budget, keeps_placement: bool = False) -> TrainJob:
        config = with_seed(budget.placed(self.job.config, keeps_placement), seed)
        placement = replace(config.placement, run_dir=self.run_dir(seed), progress="plain")
        return replace(self.job, config=replace(config, placement=placement))

    def run_dir(self, seed: int) -> Path:
        return self.folder / f"seed-{seed}"


@dataclass(frozen=True)
class GroupResult:
    """How the runs of a group ended."""

    folder: Path
    runs: dict[int, RunResult]
    """By seed."""
    scores: dict[int, float]
    """Of evaluations, if they were asked for."""

    @property
    def interval(self) -> Interval | None:
        """Of the mean return over the last 100 training episodes; None for a single seed."""
        return mean_interval([run.mean_return for run in self.runs.values() if run.mean_return is not None])


def train_seeds(
    group: Group,
    parallel: int | None = None,
    cores: int | None = None,
    keeps_placement: bool = False,
    launch: Launch = JobProcess,
) -> GroupResult:
    """Train all seeds; those that are complete already are left alone, and those that were interrupted continue.

    A seed that fails ends the others in order; the same call again continues.
    """
    config, seeds = check(group.job.config), group.seeds
    budget = Budget.of(len(seeds), parallel, cores)
    waiting, scores = list(seeds), dict[int, float]()
    title = f"{counted(len(seeds), 'seed')}, {budget.parallel} at a time, in {group.folder}"
    table = Table(title, ["seed", "steps", "return", "state"], config.placement.progress)
    with table, Pool[int](budget.parallel, launch) as pool:
        while waiting or not pool.is_empty:
            while waiting and pool.has_room:
                seed = waiting.pop(0)
                pool.start(seed, group.job_of(seed, budget, keeps_placement))
                _note(group)
            for seed, end in pool.ended(LOOK_SECONDS):
                _take(group, seed, end, scores)
                _show(table, group, seed, is_final=True)
            for seed in seeds:
                if seed in pool:
                    _show(table, group, seed, is_final=False)
    folders = {seed: RunFolder(group.run_dir(seed)) for seed in _all_seeds(group)}
    runs = {seed: folder.run_result() for seed, folder in folders.items() if seed in seeds or folder.has_result()}
    return GroupResult(group.folder, runs, scores)


def default_folder(config: Config, seeds: Sequence[int]) -> Path:
    planned = RunFolder.planned(config).path.name.partition("-seed")[0]
    named = shown_seeds(seeds).replace("..", "-").replace(",", "-")[:40]
    # Without the time, so that the same command finds what it began.
    return Path("runs") / f"{planned}-seeds{named}"


def _note(group: Group) -> None:
    """Which seeds belong together, for those who read the folder."""
    RunFolder(group.folder).save_json(group.folder / GROUP_FILE, {"seeds": _all_seeds(group)})


def _all_seeds(group: Group) -> list[int]:
    """Those of the folder before, and the group's own."""
    try:
        before = [int(seed) for seed in dict(read_document(group.folder / GROUP_FILE))["seeds"]]
    except (OSError, ValueError, TypeError, KeyError):
        before = []
    return [*before, *(seed for seed in group.seeds if seed not in before)]


def _take(group: Group, seed: int, end: JobEnd, scores: dict[int, float]) -> None:
    if end.error:
        raise HtsrlError(f"seed {seed}: {end.message}\nThe others have ended in order; the same command continues")
    if end.score is not None:
        scores[seed] = end.score


def _show(table: Table, group: Group, seed: int, is_final: bool) -> None:
    folder = RunFolder(group.run_dir(seed))
    if is_final:
        result = folder.run_result()
        reached = "" if result.mean_return is None else f"{result.mean_return:.2f}"
        table.show(seed, [str(seed), f"{result.steps:,}", reached, "complete"], is_final=True)
    else:
        steps = last_step(folder.metrics_file)
        table.show(seed, [str(seed), f"{steps:,}", "", "running" if steps else "starting"], is_final=False)
