"""The process that evaluates beside training: started by `runs/evaluator.py`, told versions one by one.

Its plan comes in a memory file, and then every version as a pickle on standard input; what it found goes, a
JSON object per line, to a pipe of its own, for an environment may print.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import cloudpickle

from htsrl.errors import HtsrlError
from htsrl.processes.kill_points import kill_point
from htsrl.processes.parent_death import die_with_parent
from htsrl.processes.process_name import name_this_process
from htsrl.runs.play import EvaluationPlan, play
from htsrl.runs.saved_policy import read_policy_file
from htsrl.runs.side_process import read_plan

NICENESS = 5
"""Where cores are scarce, a process of the run gets three times as much of one."""
BEAT_SECONDS = 0.5


def main() -> None:
    die_with_parent(int(sys.argv[1]))
    plan_fd, report_fd = int(sys.argv[2]), int(sys.argv[3])
    os.set_inheritable(report_fd, False)
    os.nice(NICENESS)
    name_this_process("evaluator")
    plan: EvaluationPlan = read_plan(plan_fd)
    start_seconds = time.process_time()
    while True:
        try:
            snapshot: Path = cloudpickle.load(sys.stdin.buffer)
        except EOFError:  # nothing more to do
            return
        answer = _answer(plan, snapshot, report_fd)
        if "cpu_seconds" in answer:  # the first has the start of this process, which then is not missing from the sum
            answer["cpu_seconds"] += start_seconds
            start_seconds = 0.0
        _send(report_fd, answer)


def _answer(plan: EvaluationPlan, snapshot: Path, report_fd: int) -> dict[str, Any]:
    try:
        return _evaluated(plan, snapshot, report_fd)
    except HtsrlError as error:
        return {"kind": "failure", "message": str(error)}
    except Exception as error:
        return {"kind": "failure", "message": f"{type(error).__name__}: {error}\n{traceback.format_exc()}"}


def _evaluated(plan: EvaluationPlan, snapshot: Path, report_fd: int) -> dict[str, Any]:
    from htsrl.runs.trained_policy import TrainedPolicy

    began, cpu_before, next_beat = time.monotonic(), time.process_time(), 0.0

    def watch(played: int, steps: int) -> None:
        nonlocal next_beat
        kill_point("inside an evaluation")
        if time.monotonic() >= next_beat:
            next_beat = time.monotonic() + BEAT_SECONDS
            _send(report_fd, {"kind": "progress", "played": played, "steps": steps})

    policy = TrainedPolicy.of(plan.experiment, plan.interface, read_policy_file(snapshot))
    found = play(policy, plan.experiment, plan.episodes, watch)
    return {
        "kind": "evaluation",
        "version": found.version,
        "returns": found.returns,
        "lengths": found.lengths,
        "infos": found.infos,
        "seconds": time.monotonic() - began,
        "cpu_seconds": time.process_time() - cpu_before,
    }


def _send(report_fd: int, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode() + b"\n"  # JSON with NaN, which Python reads again
    while data:
        data = data[os.write(report_fd, data) :]


if __name__ == "__main__":
    main()
