"""A process beside training, such as one that evaluates or films: started in no time, and ended with all it started."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Any

import cloudpickle

from htsrl.placements.fork_server import worker_environment

LOOK_SECONDS = 0.2
"""How often to ask whether a process has ended, where the kernel does not tell."""
MAX_POLL_SECONDS = 60.0


class SideProcess:
    """The leader of a process group; `kill` may come from any thread, all else from one.

    A module is run with the pid of this process, the descriptor of its plan, and those of `fds`.
    """

    def __init__(
        self, module: str, plan: bytes, fds: Sequence[int] = (), stdin: int = subprocess.DEVNULL, output: Any = None
    ) -> None:
        """Raises OSError where none can be started; `output` is a file, None for that of this process."""
        # A file, not a pipe: nobody waits until the process reads what it should do.
        with open(os.memfd_create("htsrl-plan"), "wb") as file:
            file.write(plan)
            file.flush()
            arguments = [str(number) for number in (os.getpid(), file.fileno(), *fds)]
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *arguments],
                stdin=stdin,
                stdout=output,
                stderr=output,
                pass_fds=[file.fileno(), *fds],
                env=worker_environment(),
                process_group=0,  # Ctrl-C reaches the first process alone
            )
        self.pid = self._process.pid
        self._exit_fd = _exit_fd(self.pid)
        self._ending = threading.Lock()
        self._may_be_reaped = False

    @property
    def stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def has_ended(self) -> bool:
        """Asked without reaping it: until `end` does, no other process or group can get its number."""
        if self._may_be_reaped:
            return True
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # of a program that ignores SIGCHLD
            return True

    def wait(self, seconds: float, fd: int | None = None) -> bool:
        """Until the process itself has ended, which is returned, or `fd` can be read, or for so long."""
        poll = select.poll()
        for watched in (self._exit_fd, fd):
            if watched is not None:
                poll.register(watched, select.POLLIN)
        deadline = time.monotonic() + seconds
        longest = LOOK_SECONDS if self._exit_fd is None else MAX_POLL_SECONDS
        while True:
            left = max(0.0, deadline - time.monotonic())
            is_ready = poll.poll(1000 * min(left, longest))
            if self.has_ended or is_ready or not left:
                return self.has_ended

    def kill(self) -> None:
        """Kill it and what it has started."""
        with self._ending:
            self._kill_group()

    def end(self) -> int:
        """Kill it, unless it has ended, and in any case what it has started; returns its exit code."""
        with self._ending:
            if self._may_be_reaped:
                return self._process.wait()
            self._kill_group()
            self._may_be_reaped = True
        code = self._process.wait()
        with suppress(ChildProcessError):
            while True:  # what it had started and we adopted, while a fork server made a worker
                os.waitpid(-self.pid, 0)
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        if self._exit_fd is not None:
            os.close(self._exit_fd)
            self._exit_fd = None
        return code

    def _kill_group(self) -> None:
        if not self._may_be_reaped:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)


def read_plan(fd: int) -> Any:
    """In the process: what it should do."""
    with open(fd, "rb") as file:
        file.seek(0)
        return cloudpickle.load(file)


def _exit_fd(pid: int) -> int | None:
    """Readable once the process has ended."""
    try:
        return os.pidfd_open(pid)
    except OSError:  # a kernel before 5.3, or a sandbox
        return None
