"""A worker process as the supervisor sees it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import cloudpickle

from htsrl.placements.assignment import Assignment, Equipment
from htsrl.placements.fork_server import Forked, WorkerOrder, fork_servers, worker_environment
from htsrl.placements.messages import ReportReader

DUMP_SECONDS = 1.0
DUMP_SIGNAL = signal.SIGUSR1
SPARE = "--spare"


@dataclass(frozen=True)
class Inheritance:
    """The descriptors that all workers of a run share."""

    blueprint_fd: int
    block_fd: int
    lifeline_fd: int
    doorbell_fds: Sequence[int]

    @property
    def fds(self) -> Sequence[int]:
        return [self.blueprint_fd, self.block_fd, self.lifeline_fd, *self.doorbell_fds]


class WorkerProcess:
    """Started first, told later what to do: until then it is a spare that has its preparations behind it."""

    def __init__(
        self, inheritance: Inheritance, computes: bool, spare: bool = False, libraries: Sequence[str] = ()
    ) -> None:
        """`computes` is for workers that need torch: others do without, for some environments do not bear it.
        `libraries` are modules that it will need."""
        report_read_fd, report_fd = os.pipe()
        self.dump_fd = os.memfd_create("htsrl-stack")
        try:
            self._process = _start([*inheritance.fds, report_fd, self.dump_fd], computes, spare, libraries)
        except OSError:
            os.close(report_read_fd)
            os.close(self.dump_fd)
            raise
        finally:
            os.close(report_fd)
        self.pid = self._process.pid
        self.report_reader = ReportReader(report_read_fd)
        self.exit_fd = _exit_fd(self.pid, otherwise=report_read_fd)
        """Readable once the process has ended; where there is no such thing, the end of its messages has to do."""
        self._tell(
            Equipment(
                blueprint_fd=inheritance.blueprint_fd,
                block_fd=inheritance.block_fd,
                lifeline_fd=inheritance.lifeline_fd,
                report_fd=report_fd,
                dump_fd=self.dump_fd,
            )
        )

    @property
    def fds(self) -> set[int]:
        return {self.report_reader.fd, self.exit_fd}

    @property
    def has_ended(self) -> bool:
        """Asked without fetching it: as long as that is left to do, nobody else can get its number."""
        if self._process.returncode is not None:
            return True
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    @property
    def exit_code(self) -> int:
        assert self._process.returncode is not None, "it is known once `end` was called"
        return self._process.returncode

    def assign(self, assignment: Assignment) -> None:
        assert self._process.stdin is not None
        self._tell(assignment)
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass

    def _tell(self, what: Equipment | Assignment) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(cloudpickle.dumps(what))
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has died; its exit tells

    def stack(self) -> str:
        """Where the process is, thread by thread, even if it is deep in a library: its fault handler writes it down."""
        os.kill(self.pid, DUMP_SIGNAL)
        deadline, text = time.monotonic() + DUMP_SECONDS, b""
        while time.monotonic() < deadline:
            time.sleep(0.05)
            before, text = text, os.pread(self.dump_fd, 1 << 16, 0)
            if text and text == before:
                break
        return text.decode(errors="replace") or "(it did not answer)"

    def end(self) -> None:
        """Kill the process, unless it has ended, and in any case what it may have started."""
        if self._process.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
            with suppress(ChildProcessError):
                while True:  # what it had started and we adopted, while a fork server made another worker
                    os.waitpid(-self.pid, 0)
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # an assignment that nobody read

    def close(self) -> None:
        for fd in (*self.fds, self.dump_fd):
            os.close(fd)


def _start(
    fds: Sequence[int], computes: bool, spare: bool, libraries: Sequence[str]
) -> subprocess.Popen[bytes] | Forked:
    arguments = [str(os.getpid()), *([SPARE] if spare else [])]
    if sys.platform == "linux":
        try:
            order = WorkerOrder(fds, arguments, list(sys.path), worker_environment(), libraries)
            return fork_servers.fork(computes, order)
        except (ConnectionError, TimeoutError):
            pass  # servers that cannot live here: a fresh interpreter takes longer to start, and does as well
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "htsrl.placements.worker", *arguments],
        stdin=subprocess.PIPE,
        pass_fds=fds,
        env=worker_environment(),
        process_group=0,  # Ctrl-C reaches this process alone, which then ends its workers in order
    )


def describe_exit(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    known = {number.value: number.name for number in signal.Signals}
    return f"was killed by {known.get(-code, f'signal {-code}')}"


def _exit_fd(pid: int, otherwise: int) -> int:
    try:
        return os.pidfd_open(pid)
    except OSError:  # a kernel before 5.3, or a sandbox
        return otherwise
