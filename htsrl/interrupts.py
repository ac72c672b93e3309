"""Ctrl-C and SIGTERM, put off for as long as half a deed would be worse than a late end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

PUT_OFF = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Run the block to its end; a signal that came meanwhile takes effect right after it."""
    if threading.current_thread() is not threading.main_thread():  # signals only ever interrupt the main thread
        yield
        return
    came: list[int] = []
    handlers = {number: signal.signal(number, lambda signum, _: came.append(signum)) for number in PUT_OFF}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])
