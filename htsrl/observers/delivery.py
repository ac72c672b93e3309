"""Events to those who hear of them on a thread of their own, and waits for that thread that end."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from htsrl.numerics import NumericsOfProcess
from htsrl.observers.undisturbed import Surroundings
from htsrl.processes.current_folder import current_folder_kept, have_own_current_folder

MAX_EVENTS = 4096
"""Observers that are further behind hold the run up while they get on, so that memory stays bounded."""

Event = tuple[str, Any]
"""A hook, and what it is called with."""


class Delivery:
    """Hands over events one after another.

    Whoever waits for the thread gives up once no call has returned for `patience_seconds`; from then on nobody waits
    until one does, and events that there is no room for are dropped.
    """

    def __init__(self, handle: Callable[[Event], None], patience_seconds: float) -> None:
        self._handle = handle
        self._patience_seconds = patience_seconds
        self._waiting: deque[Event] = deque()
        self._changed = threading.Condition()  # of all that follows
        self._is_busy = self._is_closed = False
        self._returned = 0  # calls so far
        self._gave_up_at: int | None = None  # `_returned` when somebody waited in vain
        self._dropped = 0
        self._thread: threading.Thread | None = None

    def put(self, event: Event) -> bool:
        """True if this is when the thread is found to hang."""
        with self._changed:
            gave_up = self._wait_until(lambda: len(self._waiting) < MAX_EVENTS)
            if len(self._waiting) < MAX_EVENTS:
                self._waiting.append(event)
            else:
                self._dropped += 1
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._deliver, name="htsrl-observers", daemon=True)
                self._thread.start()
            return gave_up

    def wait(self) -> bool:
        """Until everything was heard; True if this is when the thread is found to hang."""
        with self._changed:
            return self._wait_until(lambda: self._is_idle)

    def close(self) -> None:
        """The thread ends, at once or when its call returns; events that it has not heard of are counted as such."""
        with self._changed:
            self._dropped += len(self._waiting) + self._is_busy
            self._waiting.clear()
            self._is_closed = True
            self._changed.notify_all()

    @property
    def unheard(self) -> int:
        """Events that were dropped, or begun and not ended when all was over."""
        return self._dropped

    @property
    def _is_idle(self) -> bool:
        return not self._waiting and not self._is_busy

    def _wait_until(self, it_is_so: Callable[[], bool]) -> bool:
        returned, since = self._returned, time.monotonic()
        while not it_is_so() and self._gave_up_at != self._returned:
            if returned != self._returned:
                returned, since = self._returned, time.monotonic()
            left = since + self._patience_seconds - time.monotonic()
            if left <= 0:
                self._gave_up_at = self._returned
                return True
            self._changed.wait(left)
        return False

    def _deliver(self) -> None:
        settings = NumericsOfProcess()
        have_own_current_folder()  # workers start where the run is, also while a call lasts
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if self._is_closed:
                    return
                event, self._is_busy = self._waiting.popleft(), True
            before = Surroundings(settings)
            with current_folder_kept():
                self._handle(event)
            with self._changed:
                # Where nobody waited any more, training has drawn numbers since, and must not draw them again.
                if self._gave_up_at != self._returned:
                    before.set_back()
                self._is_busy = False
                self._returned += 1
                self._changed.notify_all()
