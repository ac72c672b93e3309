"""Reading files of unknown origin: only plain ones, of a size that was looked at first, and JSON of any depth."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

DOCUMENT_LIMIT_BYTES = 16 * 2**20


def read_plain(path: Path, limit_bytes: int | None = None) -> bytes:
    """The file's bytes; OSError for a pipe, a device, or more than `limit_bytes` (None: than fit into memory)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe is not waited for
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "it is not a plain file", str(path))
        if status.st_size > (memory_bytes() if limit_bytes is None else limit_bytes):
            raise OSError(0, f"its {status.st_size} bytes are too many", str(path))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(status.st_size)
    finally:
        os.close(descriptor)


def read_document(path: Path) -> Any:
    """A file's JSON; OSError where it cannot be read, ValueError where it is none."""
    return parsed(read_plain(path, DOCUMENT_LIMIT_BYTES))


def parsed(text: bytes | str) -> Any:
    """JSON; ValueError for anything else, also for what is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def printable(text: str) -> str:
    """Without what would command a terminal: text of a stranger's file may be shown, never obeyed."""
    return "".join(x if x.isprintable() or x == "\n" else repr(x)[1:-1] for x in text)


def memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
