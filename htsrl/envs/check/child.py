"""The other process of a check, with an interpreter of its own: the environment may do in it whatever it likes.

Started as `python -m htsrl.envs.check.child FD`, with its job on standard input; reports go to the descriptor FD.
"""

from __future__ import annotations

import random
import sys

import cloudpickle
import numpy as np

from htsrl.envs.check.examination import examine, play_only
from htsrl.envs.check.job import Job, Mouthpiece
from htsrl.envs.check.rules import contract_findings
from htsrl.errors import ConfigError, EnvironmentFailure
from htsrl.parent_death import die_with_parent


def main() -> None:
    mouthpiece = Mouthpiece(int(sys.argv[1]))
    try:
        mouthpiece.stage("while the environment's module was imported")
        job: Job = cloudpickle.load(sys.stdin.buffer)
        die_with_parent(job.parent_pid)
        random.seed(job.global_seed)
        np.random.seed(job.global_seed)
        _work(job, mouthpiece)
    except ConfigError as error:
        mouthpiece.end("bad input", str(error))
    except EnvironmentFailure as error:
        mouthpiece.end("failure", str(error))
    except BaseException as error:  # SystemExit among them: the environment's doing, to be told rather than obeyed
        mouthpiece.end("failure", f"{type(error).__name__}: {error}")
    else:
        mouthpiece.end("done")


def _work(job: Job, mouthpiece: Mouthpiece) -> None:
    if job.task == "contract":
        mouthpiece.stage("in its first steps, under Gymnasium's checker")
        for finding in contract_findings(job.subject.make):
            mouthpiece.finding(finding)
    elif job.task == "examine":
        examine(job, mouthpiece)
    else:
        play_only(job, mouthpiece)


if __name__ == "__main__":
    main()
