"""Files that are there as a whole or not at all, for what commands leave behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from htsrl.errors import ConfigError


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A name to write to; the file has its own once all is written, and nothing of it stays where that fails."""
    temporary = path.with_name(f".tmp-{os.getpid()}-{path.name}")  # the suffix stays: it tells writers the format
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}; choose another place") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, data: bytes) -> None:
    with whole_file(path) as temporary:
        temporary.write_bytes(data)
