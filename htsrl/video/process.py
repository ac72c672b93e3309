"""The process that makes one film beside training: started by `runs/filming.py`, its job is in a memory file."""

from __future__ import annotations

import os
import sys

from htsrl.errors import HtsrlError
from htsrl.numerics import single_threaded
from htsrl.processes.parent_death import die_with_parent
from htsrl.processes.process_name import name_this_process
from htsrl.runs.filming import FilmJob
from htsrl.runs.saved_policy import read_policy_file
from htsrl.runs.side_process import read_plan

NICENESS = 10
"""Where cores are scarce, a process of the run gets nine times as much of one."""


def main() -> None:
    die_with_parent(int(sys.argv[1]))
    os.nice(NICENESS)
    name_this_process("film")
    job: FilmJob = read_plan(int(sys.argv[2]))
    try:
        make_film(job)
    except HtsrlError as error:
        sys.exit(str(error))


def make_film(job: FilmJob) -> None:
    from htsrl.runs.trained_policy import TrainedPolicy
    from htsrl.video.record import Take, film_episodes

    with single_threaded():
        policy = TrainedPolicy.of(job.experiment, job.interface, read_policy_file(job.snapshot))
        film_episodes(job.experiment, policy, Take(job.path, seed=job.seed))


if __name__ == "__main__":
    main()
