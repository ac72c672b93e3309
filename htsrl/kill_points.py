"""Named steps of the protocol at which a test can have a process killed.

`HTSRL_KILL_AT="optimizer step:3"` makes a process that comes to that point for the third time kill itself there, as
SIGKILL from outside would at that very line; with `HTSRL_KILL_ONCE=FILE` only the first process that gets so far, which
makes the file. Without the variables a kill point costs one comparison.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

KILL_AT, KILL_ONCE = "HTSRL_KILL_AT", "HTSRL_KILL_ONCE"


class _Order:
    """Where the process is to die, and how often it may still come by before it does."""

    def __init__(self, text: str) -> None:
        self.point, _, times = text.rpartition(":")
        self.times_left = int(times)

    def carry_out(self) -> None:
        if once := os.environ.get(KILL_ONCE):
            try:
                Path(once).touch(exist_ok=False)
            except FileExistsError:
                return
        os.kill(os.getpid(), signal.SIGKILL)


_order = _Order(os.environ[KILL_AT]) if KILL_AT in os.environ else None


def reach(point: str) -> None:
    if _order is not None and _order.point == point:
        _order.times_left -= 1
        if _order.times_left == 0:
            _order.carry_out()
