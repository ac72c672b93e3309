"""One run per folder."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from pathlib import Path
from types import TracebackType

from htsrl.errors import RunFolderError

MAX_TEXT = 200


class RunLock:
    """Keeps others out of a run's folder until it is released.

    The kernel keeps it, not the file: it is free however its holder ends, and a file left behind keeps nobody out.
    """

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd

    @classmethod
    def acquire(cls, run_dir: Path) -> RunLock:
        """Lock the folder, which exists, or say who has."""
        try:
            # Python opens files so that worker processes do not inherit them: one that lives longer locks nothing.
            fd = os.open(run_dir / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise RunFolderError(f"cannot lock {run_dir}: {error.strerror}") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _sign(fd)
        except BlockingIOError:
            holder = _signature(fd)
            os.close(fd)
            raise RunFolderError(
                f"{run_dir} is in use by {holder}; wait until that has ended, or choose another folder"
            ) from None
        except OSError as error:
            os.close(fd)
            raise RunFolderError(
                f"cannot lock {run_dir}: {error.strerror}; choose a folder on a file system that has locks"
            ) from error
        return cls(fd)

    def release(self) -> None:
        if self._fd is not None:
            # The file stays: one who had opened it already would otherwise lock a file that nobody else can see.
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> RunLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


def _sign(fd: int) -> None:
    started = time.strftime("%Y-%m-%d %H:%M:%S")
    try:
        os.truncate(fd, 0)
        os.write(fd, f"process {os.getpid()} on {socket.gethostname()} since {started}\n".encode())
    except OSError:
        pass  # the disk is full: the lock holds all the same, without a name


def _signature(fd: int) -> str:
    """Who holds the lock, in its own words."""
    text = os.pread(fd, MAX_TEXT, 0).decode(errors="replace")
    return text.strip() or "another process"
