"""Waiting without spinning: a process sleeps until its doorbell rings, its parent dies, or the deadline passes.

A doorbell only says "look again"; what there is to do stands in shared memory. The waiter clears the bell, looks,
and sleeps only if it found nothing; the ringer writes, then rings. So no wake-up is ever lost.
"""

from __future__ import annotations

import os
import select
import time

MAX_POLL_MILLISECONDS = 2**31 - 1


class Doorbell:
    """Rung by anyone, waited for by one process: an eventfd, as a number that processes inherit."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def create(cls) -> Doorbell:
        return cls(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))

    def ring(self) -> None:
        os.eventfd_write(self.fd, 1)

    def clear(self) -> None:
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            pass  # nobody has rung

    @property
    def is_rung(self) -> bool:
        """Whether it was rung and nobody has cleared it since."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        os.close(self.fd)


class ThreadBell:
    """Rung by anyone, waited for by one thread of a process whose main thread has a doorbell and keeps the deadline."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def create(cls) -> ThreadBell:
        return cls(os.eventfd(0, os.EFD_CLOEXEC))

    def ring(self) -> None:
        os.eventfd_write(self.fd, 1)

    def wait(self) -> None:
        """Sleep until it is rung, unless it was since the last time, and clear it: both in one call of the system."""
        while True:
            try:
                os.eventfd_read(self.fd)
                return
            except InterruptedError:
                continue  # by a signal, whose handler runs in the main thread

    def close(self) -> None:
        os.close(self.fd)


class Waiter:
    """Sleeps on a doorbell and on the life of the parent process."""

    def __init__(self, doorbell: Doorbell, lifeline: int) -> None:
        """`lifeline` is the read end of a pipe that only the parent holds open for writing."""
        self._doorbell = doorbell
        self._lifeline = lifeline
        self._poll = select.poll()
        self._poll.register(doorbell.fd, select.POLLIN)
        self._poll.register(lifeline, select.POLLIN | select.POLLHUP)
        self.waited_seconds = 0.0

    def clear(self) -> None:
        self._doorbell.clear()

    def wait(self, deadline_seconds: float) -> bool:
        """True when rung, False when the deadline passed; ends the process when the parent has died."""
        start = time.monotonic()
        ready = self._poll.poll(min(deadline_seconds * 1000, MAX_POLL_MILLISECONDS))
        self.waited_seconds += time.monotonic() - start
        if self._lifeline in [fd for fd, _ in ready]:
            os._exit(1)  # nobody is left to report to
        return bool(ready)
