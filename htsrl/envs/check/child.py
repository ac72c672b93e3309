"""The other process of a check, with an interpreter of its own: the environment may do in it whatever it likes.

Started as `python -m htsrl.envs.check.child FD`, with its job on standard input; reports go to the descriptor FD.
"""

from __future__ import annotations

import random
import sys

import cloudpickle
import numpy as np

from htsrl.envs.check.examination import examine, play_only
from htsrl.envs.check.job import CheckJob, ReportWriter
from htsrl.envs.check.rules import contract_findings
from htsrl.errors import ConfigError, EnvironmentFailure
from htsrl.processes.parent_death import die_with_parent


def main() -> None:
    report_writer = ReportWriter(int(sys.argv[1]))
    try:
        report_writer.stage("while the environment's module was imported")
        job: CheckJob = cloudpickle.load(sys.stdin.buffer)
        die_with_parent(job.parent_pid)
        random.seed(job.global_seed)
        np.random.seed(job.global_seed)
        _work(job, report_writer)
    except ConfigError as error:
        report_writer.end("bad input", str(error))
    except EnvironmentFailure as error:
        report_writer.end("failure", str(error))
    except BaseException as error:  # SystemExit among them: the environment's doing, to be told rather than obeyed
        report_writer.end("failure", f"{type(error).__name__}: {error}")
    else:
        report_writer.end("done")


def _work(job: CheckJob, report_writer: ReportWriter) -> None:
    if job.task == "contract":
        report_writer.stage("in its first steps, under Gymnasium's checker")
        for finding in contract_findings(job.subject.make):
            report_writer.finding(finding)
    elif job.task == "examine":
        examine(job, report_writer)
    else:
        play_only(job, report_writer)


if __name__ == "__main__":
    main()
