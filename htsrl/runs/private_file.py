"""Writes files of a run's folder: each is complete or absent, and nobody else's to read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def json_bytes(document: Any) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()


def write_private(path: Path, data: bytes, synced: bool = True) -> None:
    """All of it or nothing: a crash leaves the old file or the new one, never half of either; one of the machine may
    leave less of what is not synced."""
    temporary = _temporary(path)
    try:
        with open(temporary, "wb", opener=_private) as file:
            file.write(data)
            if synced:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    return path.with_name(path.name + ".tmp")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
