"""A warning of a library is shown once per run, not once by every process that imports it.

Whoever shows a text first leaves a file of its name in a folder that all processes of the run know; nothing is shared
that a kill could leave locked.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

FOLDER = "HTSRL_WARNINGS_SHOWN"
"""The variable that tells processes of a run where."""


@contextmanager
def warnings_once() -> Iterator[None]:
    """Around a run: what this process shows as ever, the processes that it starts do not show again."""
    if FOLDER in os.environ:  # a run inside of another's process
        yield
        return
    folder, show = tempfile.mkdtemp(prefix="htsrl-warnings-"), warnings.showwarning

    def show_and_note(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
        _is_first(folder, message, category)
        show(message, category, *where, **more)

    os.environ[FOLDER] = folder
    warnings.showwarning = show_and_note
    try:
        yield
    finally:
        del os.environ[FOLDER]
        if warnings.showwarning is show_and_note:
            warnings.showwarning = show
        shutil.rmtree(folder, ignore_errors=True)


def show_warnings_once() -> None:
    """In a process that a run has started: pass over what another has shown."""
    show = warnings.showwarning
    if FOLDER not in os.environ or getattr(show, "is_of_a_run", False):  # twice, the second would find the first's note
        return

    def show_if_first(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
        folder = os.environ.get(FOLDER)  # looked up late: a fork server outlives the run that started it
        if folder is None or _is_first(folder, message, category):
            show(message, category, *where, **more)

    show_if_first.is_of_a_run = True  # type: ignore[attr-defined]
    warnings.showwarning = show_if_first


def _is_first(folder: str, message: Any, category: type[Warning]) -> bool:
    """Also where that cannot be known: rather twice than not at all."""
    name = hashlib.sha256(f"{category.__name__}: {message}".encode(errors="replace")).hexdigest()
    try:
        os.close(os.open(os.path.join(folder, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    except OSError:
        pass
    return True
