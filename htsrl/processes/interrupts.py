"""Ctrl-C and SIGTERM: put off while half a deed would be worse than a late end, and obeyed at once when repeated."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)
ECHO_SECONDS = 0.1
"""Two signals this close are one wish: `timeout`, for one, tells the process and then its whole group."""
Handler = Callable[[int, FrameType | None], Any] | int
STOPPING = b"\nstopping; once more kills\n"
SHOW_CURSOR = b"\x1b[?25h\r\n"


class Terminated(KeyboardInterrupt):
    """SIGTERM, treated like Ctrl-C: results are written, workers ended."""


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Run the block to its end; a signal that came meanwhile takes effect right after it."""
    # Signals only ever interrupt the main thread. Inside another such block, that one holds them back until its end.
    if threading.current_thread() is not threading.main_thread() or _StandIn.holding is not None:
        yield
        return
    stand_in = _StandIn()
    stand_in.step_in()
    try:
        yield
    finally:
        stand_in.step_out()


def end_at_second_signal() -> None:
    """The signals of a command line: the first raises KeyboardInterrupt or Terminated, a later one ends the process.

    At once, that is: inside `uninterrupted()` and in the middle of writing results as well, with exit code 130 or 143.
    """
    command_line_end = _CommandLineEnd()
    for number in _handlers():
        signal.signal(number, command_line_end)


class _CommandLineEnd:
    """A handler that ends in order at the first signal and at once at the second."""

    def __init__(self) -> None:
        self._first_at: float | None = None

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        if self.is_first(signum):
            self.end_in_order(signum)

    def is_first(self, signum: int) -> bool:
        """Count a signal that came; the second does not return."""
        now = time.monotonic()
        if self._first_at is None:
            self._first_at = now
            _say_that_it_stops(signum)
            return True
        if now - self._first_at >= ECHO_SECONDS:
            _end_at_once(signum)
        return False

    def end_in_order(self, signum: int) -> NoReturn:
        raise Terminated if signum == signal.SIGTERM else KeyboardInterrupt


class _StandIn:
    """Takes the place of the handlers: keeps a signal while it is the one that holds, and passes it on otherwise.

    Handlers are exchanged one by one, and a signal may come, and raise, between any two. Whatever is then left of the
    stand-in passes everything on, so that nothing is swallowed.
    """

    holding: _StandIn | None = None

    def __init__(self) -> None:
        self._handlers = _handlers()
        self._came: list[int] = []

    def handler_of(self, signum: int) -> Handler:
        return self._handlers[signum]

    def step_in(self) -> None:
        for number in self._handlers:
            signal.signal(number, self)
        _StandIn.holding = self

    def step_out(self) -> None:
        _StandIn.holding = None
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if self._came:
            self._make_up_for(self._came[0])

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        handler = self._handlers[signum]
        if _StandIn.holding is self:
            if not isinstance(handler, _CommandLineEnd) or handler.is_first(signum):
                self._came.append(signum)
        elif callable(handler):
            handler(signum, frame)
        else:  # the system's default, which is to end the process
            signal.signal(signum, handler)
            signal.raise_signal(signum)

    def _make_up_for(self, signum: int) -> None:
        handler = self._handlers[signum]
        if isinstance(handler, _CommandLineEnd):
            handler.end_in_order(signum)  # raising it again would make it the second
        signal.raise_signal(signum)


def _handlers() -> dict[int, Handler]:
    """The present handlers, without those of signals that are ignored, which stay so, or that are not Python's."""
    handlers: dict[int, Handler] = {}
    for number in SIGNALS:
        handler = signal.getsignal(number)
        if isinstance(handler, _StandIn):  # left behind when a signal came between two exchanges
            handler = handler.handler_of(number)
        if handler is not None and handler is not signal.SIG_IGN:
            handlers[number] = handler
    return handlers


def _say_that_it_stops(signum: int) -> None:
    """At once, for what is under way may take a while; by the descriptor, for a handler may come in the middle of a
    print. A job that is terminated is told nothing that only a person could act on."""
    if signum == signal.SIGINT:
        with suppress(OSError):
            os.write(2, STOPPING)


def _end_at_once(signum: int) -> NoReturn:
    try:
        if os.isatty(2):
            os.write(2, SHOW_CURSOR)  # the progress bar hides it
    finally:
        os._exit(128 + signum)
