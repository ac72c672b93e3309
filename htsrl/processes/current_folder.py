"""The current folder is the user's: an environment may change it while it is made or played, and it is put back."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

CLONE_FS = 0x200  # of unshare(2)


def have_own_current_folder() -> bool:
    """This thread, from here on: where it goes, no other thread goes, and no process that they start. Not where a
    container forbids it, as Docker's do unless told otherwise."""
    return sys.platform == "linux" and bool(ctypes.CDLL(None, use_errno=True).unshare(CLONE_FS) == 0)


@contextmanager
def current_folder_kept() -> Iterator[None]:
    """Whatever happens meanwhile, this process is where it was afterwards, and so are processes that it starts."""
    try:
        before = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # it may not be read; then it cannot be kept either
        yield
        return
    try:
        yield
    finally:
        try:
            os.fchdir(before)
        finally:
            os.close(before)
