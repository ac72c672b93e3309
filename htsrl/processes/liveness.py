"""Whether others are still alive."""

from __future__ import annotations

import os


def is_another_process(pid: int) -> bool:
    """Whether a process of this number lives beside this one."""
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # there, and someone else's
    return True
