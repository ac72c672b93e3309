"""A process that waits for a worker to die, with everything imported."""

from __future__ import annotations

import time
from collections.abc import Callable

from htsrl.placements.worker_process import WorkerProcess

FIRST_AFTER_SECONDS = 10.0
"""Short runs need none."""
NEXT_AFTER_SECONDS = 1.0
"""When one was taken: until its worker is back, the cores have better things to do than to import."""
PREPARATION_SECONDS = 60.0
"""For the user's code in it; one that takes longer hangs."""


class Spares:
    """Keeps one at hand, at most. Whatever befalls it, training can do without."""

    def __init__(self, launch: Callable[[], WorkerProcess], drop: Callable[[WorkerProcess], None]) -> None:
        """`drop` forgets a process that has ended."""
        self._launch = launch
        self._drop = drop
        self.process: WorkerProcess | None = None
        self._launch_time = time.monotonic() + FIRST_AFTER_SECONDS
        self._pause_seconds = FIRST_AFTER_SECONDS
        self._preparing_since: float | None = None
        self._is_prepared = False

    def look_after(self) -> None:
        now = time.monotonic()
        if self.process:
            self._listen(self.process, now)
            hangs = self._preparing_since is not None and now > self._preparing_since + PREPARATION_SECONDS
            if hangs or self.process.has_ended:
                self._give_up(self.process, now)
        elif now >= self._launch_time:
            try:
                self.process = self._launch()
            except OSError:  # no process or descriptor to be had
                self._try_later(now)

    def take(self) -> WorkerProcess | None:
        """The one at hand, once it has the user's code behind it, where it may hang."""
        now, taken = time.monotonic(), self.process
        if taken:
            self._listen(taken, now)
            if taken.has_ended or not self._is_prepared:
                return None
            self.process, self._is_prepared = None, False
            self._pause_seconds = FIRST_AFTER_SECONDS
        self._launch_time = now + NEXT_AFTER_SECONDS
        return taken

    def _listen(self, process: WorkerProcess, now: float) -> None:
        for message in process.report_reader.read():
            self._is_prepared = message["done"]
            self._preparing_since = None if message["done"] else now

    def _give_up(self, process: WorkerProcess, now: float) -> None:
        process.end()
        self._drop(process)
        self.process = self._preparing_since = None
        self._is_prepared = False
        self._try_later(now)

    def _try_later(self, now: float) -> None:
        """And ever later: one that cannot live would otherwise cost a core's time for nothing."""
        self._launch_time = now + self._pause_seconds
        self._pause_seconds *= 2
