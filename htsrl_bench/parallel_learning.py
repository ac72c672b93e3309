"""Many runs on several cores, each in a process of its own, kept as they finish."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context

from htsrl.processes.parent_death import die_with_parent
from htsrl_bench.learning import Learnable, Learning


@dataclass(frozen=True)
class LearningJob:
    """One run."""

    task: Learnable
    way: str
    seed: int

    def __str__(self) -> str:
        return f"{self.task.name}, {self.way}, seed {self.seed}"


def learn_ahead(learning: Learning, jobs: Sequence[LearningJob], parallel: int) -> None:
    """Train what has not finished before, so many at a time; `learning.learn` then finds all of it."""
    missing = [job for job in jobs if learning.found(job.task, job.way, job.seed) is None]
    print(f"{len(jobs) - len(missing)} of {len(jobs)} runs have finished before", file=sys.stderr)
    with ProcessPoolExecutor(
        parallel, get_context("spawn"), die_with_parent, (os.getpid(),), max_tasks_per_child=1
    ) as pool:
        futures = {pool.submit(_learn, learning, job): job for job in missing}
        for number, future in enumerate(as_completed(futures), start=1):
            job = futures[future]
            print(f"[{number}/{len(missing)}] {job}: score {future.result():.4g}", file=sys.stderr, flush=True)


def _learn(learning: Learning, job: LearningJob) -> float:
    return learning.learn_once(job.task, job.way, job.seed, "off").score
