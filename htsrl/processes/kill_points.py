"""Named steps of the protocol at which a test can have a process killed.

`HTSRL_KILL_AT="optimizer step:3"` makes a process that comes to that point for the third time kill itself there, as
SIGKILL from outside would at that very line; `"optimizer step:3, before a publish:1"` also at another. With
`HTSRL_KILL_ONCE=FOLDER` only the first process that gets so far, which leaves a file there; so the next one gets to the
next point. Without the variables a kill point costs one comparison.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

KILL_AT, KILL_ONCE = "HTSRL_KILL_AT", "HTSRL_KILL_ONCE"


def _orders(text: str) -> dict[str, int]:
    """Where the process is to die, and how often it may still come by before it does."""
    orders = {}
    for order in text.split(", "):
        point, _, times = order.rpartition(":")
        orders[point] = int(times)
    return orders


_counting = threading.Lock()  # environments may step on threads
_times_left: dict[str, int] | None = None


def read_orders() -> None:
    """Anew, in a process that was forked with another environment."""
    global _times_left
    _times_left = _orders(os.environ[KILL_AT]) if KILL_AT in os.environ else None


read_orders()


def kill_point(point: str) -> None:
    if _times_left is not None and point in _times_left:
        with _counting:
            _times_left[point] -= 1
            is_due = _times_left[point] == 0
        if is_due:
            _die_at(point)


def _die_at(point: str) -> None:
    if once := os.environ.get(KILL_ONCE):
        try:
            Path(once).mkdir(exist_ok=True)
            (Path(once) / point).touch(exist_ok=False)
        except FileExistsError:
            return
    os.kill(os.getpid(), signal.SIGKILL)
