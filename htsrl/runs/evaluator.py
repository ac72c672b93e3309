"""Evaluates versions in a process of its own, one after another, and never holds up the run.

While one is played, one more may wait; a newer one takes the place of that, which is skipped and counted. A process
that dies or gets nowhere is started again, and a version that it happens with twice is given up and counted.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle

from htsrl.metrics.evaluation import Evaluation
from htsrl.placements.messages import ReportReader
from htsrl.placements.worker_process import describe_exit
from htsrl.runs.play import EvaluationPlan
from htsrl.runs.side_process import SideProcess

MODULE = "htsrl.runs.evaluator_process"
ATTEMPTS = 2
LOOK_SECONDS = 0.2
"""How often one who waits for the last evaluation looks how far it has come."""


@dataclass(frozen=True)
class EvaluationJob:
    """A version to evaluate."""

    version: int
    steps: int
    snapshot: Path


@dataclass(frozen=True)
class Answer:
    """What became of a version."""

    job: EvaluationJob
    evaluation: Evaluation | None = None
    problem: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0


class Evaluator:
    """A thread of the run's first process, which sees to the evaluator's process."""

    def __init__(self, plan: EvaluationPlan, deadline_seconds: float) -> None:
        self._plan = cloudpickle.dumps(plan)
        self._deadline_seconds = deadline_seconds
        self._changed = threading.Condition()  # guards what follows
        self._waiting: EvaluationJob | None = None
        self._playing: EvaluationJob | None = None
        self._answers: list[Answer] = []
        self._closing = False
        self._child: _Child | None = None
        self._thread: threading.Thread | None = None
        self.progress = (0, 0)
        """Episodes and steps of the version that is played."""
        self.restarts = 0

    def offer(self, job: EvaluationJob) -> EvaluationJob | None:
        """Evaluate this version next; returns the one that is skipped for it."""
        with self._changed:
            skipped, self._waiting = self._waiting, job
            self._changed.notify_all()
        if self._thread is None or not self._thread.is_alive():
            self._start_thread(job)
        return skipped

    def _start_thread(self, job: EvaluationJob) -> None:
        thread = threading.Thread(target=self._work, name="htsrl-evaluator", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no more threads for us
            with self._changed:
                self._waiting = None
                self._answers.append(Answer(job, problem=str(error)))
            return
        self._thread = thread

    def answers(self) -> list[Answer]:
        """Those since it was last asked."""
        if not self._answers:
            return []
        with self._changed:
            answers, self._answers = self._answers, []
        return answers

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to wait for, be it that the thread has died."""
        if self._thread is None or not self._thread.is_alive():
            return True
        with self._changed:
            return self._waiting is None and self._playing is None

    def wait(self) -> None:
        """For a moment, or until something has changed."""
        with self._changed:
            if self._waiting is not None or self._playing is not None:
                self._changed.wait(LOOK_SECONDS)

    def close(self) -> None:
        """Whatever is played is not played to its end."""
        with self._changed:
            self._closing = True
            if self._child is not None:
                self._child.kill()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        try:
            while (job := self._next()) is not None:
                answer: Answer | None = Answer(job, problem="the thread that sees to it has died")
                try:
                    answer = self._evaluate(job)
                finally:
                    with self._changed:
                        self._playing = None
                        if answer is not None:
                            self._answers.append(answer)
                        self._changed.notify_all()
        finally:
            self._end_child()

    def _next(self) -> EvaluationJob | None:
        with self._changed:
            while self._waiting is None and not self._closing:
                self._changed.wait()
            if self._closing:
                return None
            self._playing, self._waiting, self.progress = self._waiting, None, (0, 0)
            return self._playing

    def _evaluate(self, job: EvaluationJob) -> Answer | None:
        """None where the run ends meanwhile."""
        problem = ""
        for _ in range(ATTEMPTS):
            try:
                child = self._started_child()
                if child is None:
                    return None
                message = child.evaluate(job.snapshot, self._deadline_seconds, self._note_progress)
                return _answer_of(job, message)
            except _ChildFailed as failure:
                problem = str(failure)
            except Exception as error:  # whatever it is, training continues
                problem = f"{type(error).__name__}: {error}"
            if self._closing:
                return None
            self._end_child()
            self.restarts += 1
        return Answer(job, problem=problem)

    def _note_progress(self, played: int, steps: int) -> None:
        self.progress = (played, steps)

    def _started_child(self) -> _Child | None:
        with self._changed:
            if self._closing:
                return None
            if self._child is not None:
                return self._child
        child = _Child(self._plan)  # nobody else waits for this
        with self._changed:
            self._child = child
            return None if self._closing else child

    def _end_child(self) -> None:
        with self._changed:
            child, self._child = self._child, None
        if child is not None:
            child.end()


class _ChildFailed(Exception):
    """The evaluator's process has died, or got nowhere."""


class _Child:
    """The evaluator's process."""

    def __init__(self, plan: bytes) -> None:
        read_fd, report_fd = os.pipe()
        try:
            self._process = SideProcess(MODULE, plan, [report_fd], stdin=subprocess.PIPE)
        except OSError:
            os.close(read_fd)
            raise
        finally:
            os.close(report_fd)
        self._reader = ReportReader(read_fd)

    def evaluate(self, snapshot: Path, deadline_seconds: float, on_progress: Callable[[int, int], None]) -> Any:
        """The message that it ends with; every other one is a sign of life."""
        self._tell(cloudpickle.dumps(snapshot))
        deadline = time.monotonic() + deadline_seconds
        while True:
            # Its end counts, not that of its messages: what an environment has started may hold on to the pipe.
            fd = None if self._reader.closed else self._reader.fd
            has_ended = self._process.wait(deadline - time.monotonic(), fd)
            messages = self._reader.read()
            for message in messages:
                if message["kind"] != "progress":
                    return message
                on_progress(message["played"], message["steps"])
            if messages:
                deadline = time.monotonic() + deadline_seconds
            elif has_ended:
                raise _ChildFailed(f"its process (pid {self._process.pid}) {describe_exit(self._process.end())}")
            elif time.monotonic() >= deadline:
                raise _ChildFailed(
                    f"its process (pid {self._process.pid}) got nowhere for deadline_seconds={deadline_seconds:g}"
                )

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        """Kill it, and what it may have started."""
        self._process.end()
        os.close(self._reader.fd)

    def _tell(self, data: bytes) -> None:
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has died; its exit tells


def _answer_of(job: EvaluationJob, message: dict[str, Any]) -> Answer:
    if message["kind"] == "failure":
        return Answer(job, problem=message["message"])
    infos = {key: tuple(numbers) for key, numbers in message["infos"].items()}
    evaluation = Evaluation(
        tuple(message["returns"]), tuple(message["lengths"]), job.version, job.snapshot, infos, job.steps
    )
    return Answer(job, evaluation, seconds=message["seconds"], cpu_seconds=message["cpu_seconds"])
