"""The process of one job: `python -m htsrl.sweeps.child REPORT_FD PARENT_PID`, the job on its standard input."""

from __future__ import annotations

import os
import pickle
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path

from htsrl.errors import HtsrlError, RunFolderError
from htsrl.processes.interrupts import end_at_second_signal
from htsrl.processes.parent_death import die_with_parent
from htsrl.runs.lock import RunLock
from htsrl.runs.start import has_begun
from htsrl.sweeps.job import JobEnd, TrainJob, report_bytes

LOCK_SECONDS = 20.0
"""For the process that a killed sweep leaves behind: the kernel is ending it."""


def main() -> None:
    report_fd, parent_pid = int(sys.argv[1]), int(sys.argv[2])
    die_with_parent(parent_pid)
    end_at_second_signal()
    # Only from the pipe that the parent made: nobody else can write to it.
    job: TrainJob = pickle.loads(sys.stdin.buffer.read())
    try:
        end = _run(job)
    except HtsrlError as error:
        traceback.print_exception(error)
        end = JobEnd(type(error).__name__, str(error), has_begun=job.run_dir.exists())
    except KeyboardInterrupt:
        end = JobEnd("interrupted", "it was asked to end")
    os.write(report_fd, report_bytes(asdict(end)))


def _run(job: TrainJob) -> JobEnd:
    from htsrl.evaluate import evaluate
    from htsrl.train import resume_or_start

    _wait_until_free(job.run_dir)
    watching = job.watching()
    resume_or_start(job.config, watching)
    if not job.eval_episodes:
        return JobEnd()
    env = job.config.experiment.env
    evaluation = evaluate(job.run_dir, job.eval_episodes, env=None if isinstance(env, str) else env, trust=True)
    watching.tell_evaluation(evaluation, print)
    return JobEnd(score=evaluation.mean_return)


def _wait_until_free(run_dir: Path) -> None:
    """Until a process that is being killed has let go of the run."""
    if not has_begun(run_dir):
        return
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            RunLock.acquire(run_dir).release()
            return
        except RunFolderError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


if __name__ == "__main__":
    main()
