"""Many runs on several cores, each in a process of its own, kept as they finish."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context

from htsrl.errors import HtsrlError
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
    """Train what has not finished before, so many at a time; `learning.learn` then finds all of it.

    The first that fails ends it: those under way are finished and kept, and no other is begun.
    """
    missing = [job for job in jobs if learning.found(job.task, job.way, job.seed) is None]
    print(f"{len(jobs) - len(missing)} of {len(jobs)} runs have finished before", file=sys.stderr)
    waiting, under_way, number = list(reversed(missing)), dict[Future[float], LearningJob](), 0
    while waiting or under_way:
        while waiting and len(under_way) < parallel:
            job = waiting.pop()
            under_way[_begin(learning, job)] = job
        for future in wait(under_way, return_when=FIRST_COMPLETED).done:
            job, number = under_way.pop(future), number + 1
            print(f"[{number}/{len(missing)}] {job}: score {_score(future, job):.4g}", file=sys.stderr, flush=True)


def _begin(learning: Learning, job: LearningJob) -> Future[float]:
    """In a pool of its own: a common one trains what it was given, whatever happens meanwhile, and one that replaces
    its processes after a task each may forget to (https://github.com/python/cpython/issues/115634)."""
    pool = ProcessPoolExecutor(1, get_context("spawn"), die_with_parent, (os.getpid(),))
    future = pool.submit(_learn, learning, job)
    pool.shutdown(wait=False)
    return future


def _score(future: Future[float], job: LearningJob) -> float:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise HtsrlError(
            f"the process of {job} was killed; the same command continues, with fewer at a time (--parallel) in less "
            "memory"
        ) from error
    except HtsrlError as error:
        raise HtsrlError(f"{job}: {error}") from error


def _learn(learning: Learning, job: LearningJob) -> float:
    return learning.learn_once(job.task, job.way, job.seed, "off").score
