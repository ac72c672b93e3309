"""Every role in a process of its own, over shared memory, watched by this one."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cloudpickle

from htsrl.dataflow.memory import SharedArrays
from htsrl.dataflow.shared import Shared
from htsrl.dataflow.signals import Doorbell
from htsrl.errors import HtsrlError, PeerDied
from htsrl.numerics import ONE_THREAD
from htsrl.placements.assignment import Assignment, Doorbells, Hosted, crew
from htsrl.placements.blueprint import Blueprint, Envs
from htsrl.placements.messages import Earpiece, error_of, report_of
from htsrl.roles.report import UpdateReport
from htsrl.schedules.schedule import storage_of

GRACE_SECONDS = 0.5


@dataclass(frozen=True)
class Worker:
    """A running worker process, as the supervisor sees it."""

    hosted: Hosted
    process: subprocess.Popen[bytes]
    earpiece: Earpiece
    exit_fd: int
    """Readable once the process has ended. Elsewhere than on Linux its end is only seen as that of its messages."""

    @property
    def fds(self) -> set[int]:
        return {self.earpiece.fd, self.exit_fd}


def run_processes(blueprint: Blueprint, memory: SharedArrays, on_report: Callable[[UpdateReport], None]) -> None:
    """Train to the end in worker processes, reporting after every update; leaves no process behind."""
    supervisor = Supervisor(blueprint, memory)
    try:
        supervisor.start()
        supervisor.watch(on_report)
    finally:
        supervisor.stop()


class Supervisor:
    """Starts the workers, listens to them, and ends them."""

    def __init__(self, blueprint: Blueprint, memory: SharedArrays) -> None:
        self._blueprint = blueprint
        self._memory = memory
        self._shared: Shared = blueprint.shared(memory)
        self._hosted = crew(blueprint)
        self._doorbells = [Doorbell.create() for _ in self._hosted]
        # Only this process holds the writing end, so its closing tells the workers that we are gone.
        self._lifeline_fd, self._our_life_fd = os.pipe()
        self._workers: list[Worker] = []

    def start(self) -> None:
        for number, hosted in enumerate(self._hosted):
            self._workers.append(self._start_worker(number, hosted))

    def watch(self, on_report: Callable[[UpdateReport], None]) -> None:
        """Pass on reports until the learner has finished; raise what made a worker fail."""
        poll, worker_of = select.poll(), {fd: worker for worker in self._workers for fd in worker.fds}
        for fd in worker_of:
            poll.register(fd, select.POLLIN | select.POLLHUP)
        while True:
            for fd in sorted(ready for ready, _ in poll.poll()):
                worker = worker_of[fd]
                ended = fd == worker.exit_fd and worker.process.poll() is not None
                messages = worker.earpiece.read()
                for message in messages or []:
                    if self._handle(message, on_report):
                        return
                if ended or messages is None:
                    raise self._obituary(worker)

    def stop(self) -> None:
        """Ask all workers to end, then make them."""
        self._shared.exchange.stop()
        for doorbell in self._doorbells:
            doorbell.ring()
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in self._workers:
            try:
                worker.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            for fd in worker.fds:
                os.close(fd)
        for doorbell in self._doorbells:
            doorbell.close()
        os.close(self._lifeline_fd)
        os.close(self._our_life_fd)

    def _handle(self, message: dict[str, Any], on_report: Callable[[UpdateReport], None]) -> bool:
        """Act on one message; True when training is over."""
        if message["kind"] == "failure":
            raise error_of(message)
        if message["kind"] == "update":
            report = report_of(message)
            on_report(report)
            return report.finished
        return False

    def _start_worker(self, number: int, hosted: Hosted) -> Worker:
        report_read_fd, report_fd = os.pipe()
        assignment = Assignment(
            number=number,
            hosted=hosted,
            blueprint=self._blueprint,
            doorbells=self._doorbells_for(number),
            memory_fd=self._memory.fd,
            lifeline_fd=self._lifeline_fd,
            report_fd=report_fd,
            parent_pid=os.getpid(),
        )
        doorbell_fds = {fd for doorbell in self._doorbells for fd in doorbell.fds}
        process = subprocess.Popen(
            # -P and the path below: the worker imports what this process would, and not more.
            [sys.executable, "-P", "-m", "htsrl.placements.worker"],
            stdin=subprocess.PIPE,
            pass_fds=[self._memory.fd, self._lifeline_fd, report_fd, *doorbell_fds],
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(sys.path)},
            process_group=0,  # Ctrl-C reaches this process alone, which then ends its workers in order
        )
        os.close(report_fd)
        assert process.stdin is not None
        with process.stdin:
            process.stdin.write(cloudpickle.dumps(assignment))
        exit_fd = os.pidfd_open(process.pid) if hasattr(os, "pidfd_open") else report_read_fd
        return Worker(hosted, process, Earpiece(report_read_fd), exit_fd)

    def _doorbells_for(self, number: int) -> Doorbells:
        num_envs = self._blueprint.experiment.num_envs
        executor_of, actor_of = [self._doorbells[0]] * num_envs, [self._doorbells[0]] * num_envs
        for hosted, doorbell in zip(self._hosted, self._doorbells, strict=True):
            for env in _envs_of(self._blueprint.executor_envs, hosted.executor):
                executor_of[env] = doorbell
            for env in _envs_of(self._blueprint.actor_envs, hosted.actor):
                actor_of[env] = doorbell
        return Doorbells(
            own=self._doorbells[number],
            executor_of=tuple(executor_of),
            actor_of=tuple(actor_of),
            learner=self._doorbells[-1],
            step_barrier=self._shared.schedule.step_barrier,
        )

    def _obituary(self, worker: Worker) -> HtsrlError:
        code = worker.process.wait()
        cause = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        update = self._shared.exchange.published_version
        full = self._shared.exchange.rollout_is_complete(update)
        learner = "read" if full else "waited for"
        return PeerDied(
            f"{worker.hosted.name} (pid {worker.process.pid}) {cause} while the learner {learner} storage "
            f"{storage_of(update)} (update {update})"
        )


def _envs_of(shares: tuple[Envs, ...], number: int | None) -> Envs:
    return () if number is None else shares[number]
