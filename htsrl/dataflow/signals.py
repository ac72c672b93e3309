"""Waiting without spinning: a process sleeps until its doorbell rings, its parent dies, or the deadline passes.

A doorbell only says "look again"; what there is to do stands in shared memory. The waiter clears the bell, looks,
and sleeps only if it found nothing; the ringer writes, then rings. So no wake-up is ever lost.
"""

from __future__ import annotations

import os
import select
import time


class Doorbell:
    """Rung by anyone, waited for by one process."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd = read_fd
        self.write_fd = write_fd

    @classmethod
    def create(cls) -> Doorbell:
        if hasattr(os, "eventfd"):
            fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            return cls(fd, fd)
        read_fd, write_fd = os.pipe()
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)
        return cls(read_fd, write_fd)

    @property
    def fds(self) -> tuple[int, ...]:
        return tuple({self.read_fd, self.write_fd})

    def ring(self) -> None:
        try:
            os.write(self.write_fd, (1).to_bytes(8, "little"))
        except BlockingIOError:
            pass  # already ringing as loud as it can

    def clear(self) -> None:
        try:
            os.read(self.read_fd, 8 if self.read_fd == self.write_fd else 65536)
        except BlockingIOError:
            pass

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)


class Waiter:
    """Sleeps on a doorbell and on the life of the parent process."""

    def __init__(self, doorbell: Doorbell, lifeline: int) -> None:
        """`lifeline` is the read end of a pipe that only the parent holds open for writing."""
        self._doorbell = doorbell
        self._lifeline = lifeline
        self._poll = select.poll()
        self._poll.register(doorbell.read_fd, select.POLLIN)
        self._poll.register(lifeline, select.POLLIN | select.POLLHUP)
        self.waited_seconds = 0.0

    def clear(self) -> None:
        self._doorbell.clear()

    def wait(self, deadline_seconds: float) -> bool:
        """True when rung, False when the deadline passed; ends the process when the parent has died."""
        start = time.monotonic()
        ready = self._poll.poll(deadline_seconds * 1000)
        self.waited_seconds += time.monotonic() - start
        if any(fd == self._lifeline for fd, _ in ready):
            os._exit(1)  # nobody is left to report to
        return bool(ready)
