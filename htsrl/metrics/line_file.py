"""Files that only grow at their end, and lose nothing when the disk is full."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

from htsrl.processes.interrupts import uninterrupted
from htsrl.stderr import warn_on_stderr as warn_on_stderr

Warn = Callable[[str], None]
"""Takes a line for the user."""

REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG, errno.ESTALE)


class PatientFile:
    """Appends bytes, for its user's eyes only; what the disk refuses waits in memory and is tried again, in order.

    There is no other buffer: what the disk took is with the operating system, and a killed run keeps it.
    """

    def __init__(self, path: Path, warn: Warn = warn_on_stderr) -> None:
        self._path = path
        self._warn = warn
        self._fd: int | None = None
        # Without a bound: at a kilobyte a second, a day without disk is 86 MB, and they are the results.
        self._pending = bytearray()
        self._refusal: OSError | None = None
        self._closed = False
        self.flush()

    def write(self, data: bytes) -> None:
        assert not self._closed
        self._pending += data
        self.flush()

    def flush(self) -> None:
        """Try again what the disk has refused so far."""
        with uninterrupted():  # bytes that were written and not crossed off would be written twice
            try:
                self._hand_over()
            except OSError as error:
                if error.errno not in REFUSALS:
                    raise
                if self._refusal is None:
                    self._warn(f"{self._path}: {error.strerror}; training continues, and what belongs there is kept")
                self._refusal = error
            else:
                if self._refusal is not None:
                    self._warn(f"{self._path} can be written again; nothing of it is missing")
                self._refusal = None

    def sync(self) -> None:
        """Have all of it on the disk, not only with the operating system; raises OSError where the disk refuses."""
        self.flush()
        if self._refusal is not None:
            raise OSError(self._refusal.errno, self._refusal.strerror, str(self._path))
        assert self._fd is not None
        os.fsync(self._fd)

    def close(self) -> None:
        if self._closed:
            return
        self.flush()
        if self._pending and self._refusal is not None:
            self._warn(f"{self._path} lacks its last {len(self._pending):,} bytes: {self._refusal.strerror}")
        if self._fd is not None:
            os.close(self._fd)
        self._closed = True

    def _hand_over(self) -> None:
        if self._fd is None:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        while self._pending:
            # A disk that fills up takes a part. The rest follows right behind it, however much later.
            num_written = os.write(self._fd, self._pending)
            del self._pending[:num_written]


class LineFile:
    """Appends whole lines of text.

    A file that exists is continued, after the line that a kill may have left unfinished is removed.
    """

    def __init__(self, path: Path, warn: Warn = warn_on_stderr) -> None:
        _drop_unfinished_line(path)
        self._file = PatientFile(path, warn)

    def write(self, line: str) -> None:
        assert "\n" not in line
        self._file.write(line.encode() + b"\n")

    def flush(self) -> None:
        """Try again what the disk has refused so far."""
        self._file.flush()

    def sync(self) -> None:
        """Have all lines on the disk, not only with the operating system; raises OSError where the disk refuses."""
        self._file.sync()

    def close(self) -> None:
        self._file.close()


def drop_lines_after(path: Path, key: str, last: int) -> int | None:
    """Cut a file of JSON objects, whose `key` rises from line to line, behind the last line that has `key <= last`.

    For a run that resumes there: it will write what follows again. Returns the `key` of the last line left, which is
    less than `last` where a kill or a full disk took lines that the run had reported; None where no line is left.
    """
    lines = path.read_bytes() if path.exists() else b""
    # From the end, where the lines to drop are: the file of a long run holds millions before them.
    end = lines.rfind(b"\n") + 1
    kept: int | None = None
    while end > 0:
        start = lines.rfind(b"\n", 0, end - 1) + 1
        value = _value_of(key, lines[start:end])
        if value is not None and value <= last:
            kept = value
            break
        end = start
    if end < len(lines):
        os.truncate(path, end)
    return kept


def _value_of(key: str, line: bytes) -> int | None:
    """None where the line is damaged, as a power cut may leave the newest ones."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    value = record.get(key) if isinstance(record, dict) else None
    return value if isinstance(value, int) else None


def _drop_unfinished_line(path: Path) -> None:
    if path.exists():
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
