"""The current folder is the user's: an environment may change it while it is made or played, and it is put back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


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
