"""Reading the files of a run folder of unknown origin: plain files inside it, by name, and through no link."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from htsrl.plain_files import DOCUMENT_LIMIT_BYTES, parsed

MAX_NAMES = 1_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe is not waited for


class Stamp(NamedTuple):
    """Changes whenever a file does."""

    inode: int
    num_bytes: int
    modified_ns: int


@dataclass(frozen=True)
class RunFiles:
    """The files of one run folder, `parts` below `root`; only `root` itself may be reached through links."""

    root: Path
    parts: tuple[str, ...]

    @property
    def path(self) -> Path:
        return self.root.joinpath(*self.parts)

    def stamp(self, *names: str) -> Stamp | None:
        """None where there is no plain file of that name."""
        try:
            with self._folder(names[:-1]) as folder:
                status = os.stat(_plain_name(names[-1]), dir_fd=folder, follow_symlinks=False)
        except OSError:
            return None
        return Stamp(status.st_ino, status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None

    @contextmanager
    def opened(self, *names: str) -> Iterator[int]:
        """A descriptor of a plain file; OSError for a link, a pipe, a device or a folder."""
        descriptor = self.open(*names)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def open(self, *names: str) -> int:
        """As `opened`, for the caller to close."""
        with self._folder(names[:-1]) as folder:
            descriptor = os.open(_plain_name(names[-1]), _FILE, dir_fd=folder)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(0, "it is not a plain file", names[-1])
        return descriptor

    def read(self, *names: str, limit_bytes: int = DOCUMENT_LIMIT_BYTES) -> bytes:
        with self.opened(*names) as descriptor:
            num_bytes = os.fstat(descriptor).st_size
            if num_bytes > limit_bytes:
                raise OSError(0, f"its {num_bytes:,} bytes are too many to show", names[-1])
            return read_at(descriptor, 0, num_bytes)

    def document(self, *names: str) -> Any:
        """A file's JSON; OSError where it cannot be read, ValueError where it is none."""
        return parsed(self.read(*names))

    def names(self, *folder: str) -> list[str]:
        """Of the plain files in a folder, sorted; none where there is no such folder."""
        try:
            with self._folder(folder) as descriptor, os.scandir(descriptor) as entries:
                found = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        except OSError:
            return []
        return sorted(found)[:MAX_NAMES]

    @contextmanager
    def _folder(self, below: tuple[str, ...]) -> Iterator[int]:
        descriptor = os.open(self.root, _FOLDER)
        try:
            for part in (*self.parts, *below):
                inner = os.open(_plain_name(part), _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)


def read_at(descriptor: int, offset: int, num_bytes: int) -> bytes:
    """So many bytes, fewer only at the file's end."""
    pieces = []
    while num_bytes > 0 and (piece := os.pread(descriptor, num_bytes, offset)):
        pieces.append(piece)
        offset += len(piece)
        num_bytes -= len(piece)
    return b"".join(pieces)


def _plain_name(name: str) -> str:
    """One step down and never up."""
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise OSError(0, "it is not the name of a file", name)
    return name
