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
    with ProcessPoolExecutor(
        parallel, get_context("spawn"), die_with_parent, (os.getpid(),), max_tasks_per_child=1
    ) as pool:
        while waiting or under_way:
            # As many as there are processes: what the pool has taken, it trains, whatever happens meanwhile.
            while waiting and len(under_way) < parallel:
                job = waiting.pop()
                under_way[pool.submit(_learn, learning, job)] = job
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                job, number = under_way.pop(future), number + 1
                score = _score(future, job, len(under_way))
                print(f"[{number}/{len(missing)}] {job}: score {score:.4g}", file=sys.stderr, flush=True)


def _score(future: Future[float], job: LearningJob, num_others: int) -> float:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise HtsrlError(
            f"the process of a run was killed, of {job} or one beside it; with less memory at a time (--parallel) the "
            "same command continues"
        ) from error
    except BaseException as error:
        # Said at once, not once the others have finished.
        others = f"; {num_others} others under way are finished, and kept" if num_others else ""
        print(f"{job}: {type(error).__name__}{others}", file=sys.stderr, flush=True)
        if isinstance(error, HtsrlError):
            raise HtsrlError(f"{job}: {error}") from error
        raise


def _learn(learning: Learning, job: LearningJob) -> float:
    return learning.learn_once(job.task, job.way, job.seed, "off").score
