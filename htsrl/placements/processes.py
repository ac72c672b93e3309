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

import cloudpickle

from htsrl.dataflow.memory import SharedArrays
from htsrl.dataflow.shared import Shared
from htsrl.dataflow.signals import Doorbell
from htsrl.errors import HtsrlError, PeerDied
from htsrl.interrupts import uninterrupted
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
    """Readable once the process has ended; where there is no such thing, its end is seen as that of its messages."""

    @property
    def fds(self) -> set[int]:
        return {self.earpiece.fd, self.exit_fd}

    def wait(self, seconds: float) -> None:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass  # `end` sees to it

    def end(self) -> None:
        """Kill the process, and what it may have started, unless it has ended."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)


def run_processes(blueprint: Blueprint, memory: SharedArrays, on_report: Callable[[UpdateReport], None]) -> None:
    """Train to the end in worker processes, reporting after every update; leaves no process behind."""
    supervisor = Supervisor(blueprint, memory, on_report)
    try:
        supervisor.start()
        supervisor.watch()
    finally:
        supervisor.stop()


class Supervisor:
    """Starts the workers, listens to them, and ends them."""

    def __init__(self, blueprint: Blueprint, memory: SharedArrays, on_report: Callable[[UpdateReport], None]) -> None:
        self._blueprint = blueprint
        self._memory = memory
        self._on_report = on_report
        self._shared: Shared = blueprint.shared(memory)
        self._hosted = crew(blueprint)
        self._doorbells = [Doorbell.create() for _ in self._hosted]
        # Only this process holds the writing end, so its closing tells the workers that we are gone.
        self._lifeline_fd, self._our_life_fd = os.pipe()
        self._workers: list[Worker] = []

    def start(self) -> None:
        for number, hosted in enumerate(self._hosted):
            self._start_worker(number, hosted)

    def watch(self) -> None:
        """Pass on reports until the learner has finished; raise what made a worker fail."""
        poll, worker_of = select.poll(), {fd: worker for worker in self._workers for fd in worker.fds}
        for fd in worker_of:
            poll.register(fd, select.POLLIN | select.POLLHUP)
        while True:
            for fd, _ in poll.poll():
                worker = worker_of[fd]
                ended = fd == worker.exit_fd and worker.process.poll() is not None
                if self._listen_to(worker):
                    return
                if ended or worker.earpiece.closed:
                    raise self._obituary(worker)

    def stop(self) -> None:
        """Ask all workers to end, then make them; what the learner has still reported is passed on."""
        self._shared.exchange.stop()
        for doorbell in self._doorbells:
            doorbell.ring()
        try:
            deadline = time.monotonic() + GRACE_SECONDS
            for worker in self._workers:
                worker.wait(max(0.0, deadline - time.monotonic()))
        finally:
            for worker in self._workers:
                worker.end()
            for worker in self._workers:
                with uninterrupted():
                    self._take_last_reports(worker)
                worker.close()
            for fd in (self._lifeline_fd, self._our_life_fd, *(doorbell.fd for doorbell in self._doorbells)):
                os.close(fd)

    def _listen_to(self, worker: Worker) -> bool:
        """Act on a worker's messages; True when training is over."""
        with uninterrupted():  # a message that was read and not passed on would be missing from the digest
            for message in worker.earpiece.read():
                if message["kind"] == "failure":
                    raise error_of(message)
                report = report_of(message)
                self._on_report(report)
                if report.finished:
                    return True
        return False

    def _take_last_reports(self, worker: Worker) -> None:
        while messages := worker.earpiece.read():
            for message in messages:
                if message["kind"] == "update":
                    self._on_report(report_of(message))

    def _start_worker(self, number: int, hosted: Hosted) -> None:
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
        process = subprocess.Popen(
            # -P and the path below: the worker imports what this process would, and not more.
            [sys.executable, "-P", "-m", "htsrl.placements.worker"],
            stdin=subprocess.PIPE,
            pass_fds=[self._memory.fd, self._lifeline_fd, report_fd, *(doorbell.fd for doorbell in self._doorbells)],
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(sys.path)},
            process_group=0,  # Ctrl-C reaches this process alone, which then ends its workers in order
        )
        worker = Worker(hosted, process, Earpiece(report_read_fd), _exit_fd(process.pid, report_read_fd))
        self._workers.append(worker)
        os.close(report_fd)
        assert process.stdin is not None
        try:
            with process.stdin:
                process.stdin.write(cloudpickle.dumps(assignment))
        except BrokenPipeError:
            raise self._obituary(worker) from None

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
        worker.end()
        code = worker.process.returncode
        cause = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        update = self._shared.exchange.published_version
        full = self._shared.exchange.rollout_is_complete(update)
        learner, did = "it" if worker.hosted.learner else "the learner", "read" if full else "waited for"
        return PeerDied(
            f"{worker.hosted.name} (pid {worker.process.pid}) {cause} while {learner} {did} "
            f"storage {storage_of(update)} (update {update})"
        )


def _exit_fd(pid: int, otherwise: int) -> int:
    try:
        return os.pidfd_open(pid)
    except OSError:  # a kernel before 5.3, or a sandbox
        return otherwise


def _envs_of(shares: tuple[Envs, ...], number: int | None) -> Envs:
    return () if number is None else shares[number]
