"""A process that must not outlive the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """Be killed by the kernel when the parent dies, even in the middle of a long step."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent_pid:  # it had died before we asked
            os._exit(1)


def parent_is_stopped() -> bool:
    """Whether somebody has put the parent to sleep, as Ctrl-Z does."""
    try:
        status = Path(f"/proc/{os.getppid()}/stat").read_text()
    except OSError:  # no such files on this system
        return False
    return status.rpartition(")")[2].split()[0] in ("T", "t")
