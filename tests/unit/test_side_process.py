"""A process beside training takes what it has started with it, and nobody waits for it longer than it lives."""

from __future__ import annotations

import os
import select
import subprocess
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from htsrl.runs import evaluator
from htsrl.runs.evaluator import EvaluationJob, Evaluator
from htsrl.runs.side_process import SideProcess

SECONDS = 60.0
LONG_PLAN = bytes(1 << 20)
"""More than a pipe holds."""
FORKS = """
import os, sys, time
plan_fd, report_fd = int(sys.argv[2]), int(sys.argv[3])
pid = os.fork()
if pid == 0:
    time.sleep(600)
os.write(report_fd, b'{"kind": "progress", "played": %d, "steps": %d}\\n' % (pid, os.fstat(plan_fd).st_size))
"""
"""Starts a process that holds on to all it inherits, and tells its pid."""


@pytest.fixture
def make_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a module of this source, which the processes of this test can import."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(source: str) -> str:
        (tmp_path / "beside.py").write_text(source)
        return "beside"

    return write


def has_died(pidfd: int) -> bool:
    return bool(select.select([pidfd], [], [], SECONDS)[0])


def evaluate_until_it_fails(child: evaluator._Child) -> tuple[str, int, int]:
    """What the failure says, the plan's size as the process sees it, and a pidfd of what that has started."""
    noted: list[tuple[int, int]] = []

    def note(pid: int, size: int) -> None:
        noted.append((os.pidfd_open(pid), size))

    with pytest.raises(evaluator._ChildFailed) as failure:
        child.evaluate(Path("snapshot"), 10 * SECONDS, note)
    ((pidfd, size),) = noted
    return str(failure.value), size, pidfd


def test_an_evaluator_that_has_ended_is_noticed_though_its_fork_holds_the_pipe(
    monkeypatch: pytest.MonkeyPatch, make_module: Any
) -> None:
    monkeypatch.setattr(evaluator, "MODULE", make_module(FORKS + "sys.exit(3)"))
    child = evaluator._Child(LONG_PLAN)
    said, size, pidfd = evaluate_until_it_fails(child)
    child.end()
    assert said.endswith("exited with code 3")
    assert size == len(LONG_PLAN)
    assert has_died(pidfd)
    os.close(pidfd)


def test_a_kill_takes_the_whole_group(monkeypatch: pytest.MonkeyPatch, make_module: Any) -> None:
    monkeypatch.setattr(evaluator, "MODULE", make_module(FORKS + "time.sleep(600)"))
    child = evaluator._Child(b"")
    noted: list[int] = []

    def note(pid: int, size: int) -> None:
        noted.append(os.pidfd_open(pid))
        threading.Thread(target=child.kill).start()

    with pytest.raises(evaluator._ChildFailed, match="was killed by SIGKILL"):
        child.evaluate(Path("snapshot"), 10 * SECONDS, note)
    assert has_died(noted[0])
    child.end()
    os.close(noted[0])


def test_what_a_process_left_behind_is_killed_after_its_end(make_module: Any) -> None:
    read_fd, write_fd = os.pipe()
    process = SideProcess(make_module(FORKS), LONG_PLAN, [write_fd], output=subprocess.DEVNULL)
    os.close(write_fd)
    assert process.wait(SECONDS)
    pidfd = os.pidfd_open(int(os.read(read_fd, 1000).split()[3].rstrip(b",")))
    assert process.end() == process.end() == 0
    assert has_died(pidfd)
    os.close(pidfd)
    os.close(read_fd)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_evaluator_whose_thread_dies_is_idle_and_works_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Breaks:
        def __init__(self, plan: bytes) -> None:
            cloudpickle.loads(plan)
            raise SystemExit

    monkeypatch.setattr(evaluator, "_Child", Breaks)
    beside = Evaluator(None, SECONDS)  # type: ignore[arg-type]
    for version in (1, 2):
        beside.offer(EvaluationJob(version, version, tmp_path))
        assert beside._thread is not None
        beside._thread.join(SECONDS)
        assert beside.is_idle
        assert [answer.problem for answer in beside.answers()] == ["the thread that sees to it has died"]
    beside.close()


def test_a_system_without_threads_costs_an_evaluation_and_not_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    beside = Evaluator(None, SECONDS)  # type: ignore[arg-type]
    assert beside.offer(EvaluationJob(1, 1, tmp_path)) is None
    assert beside.is_idle
    assert [answer.problem for answer in beside.answers()] == ["can't start new thread"]
    beside.close()
