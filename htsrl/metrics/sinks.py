"""Where metrics are written: a JSON-lines file, TensorBoard."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from htsrl.errors import RunFolderError


class Sink(Protocol):
    """Takes the metrics of a run as they come."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class JsonLines:
    """One JSON object per line, `{"step": 2048, "time/fps": 8123.0, ...}`; what is not finite becomes null.

    A file that exists is continued, after the line that a kill may have left unfinished is removed.
    """

    def __init__(self, path: Path) -> None:
        _drop_unfinished_line(path)
        self._file = path.open("a", encoding="utf-8")

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        assert "step" not in metrics, "a metric called step would replace the step itself"
        record = {"step": step, **{name: _finite_or_none(value) for name, value in metrics.items()}}
        self._file.write(json.dumps(record, allow_nan=False) + "\n")
        # Handed to the operating system line by line: a killed run keeps them all.
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class TensorBoard:
    """Event files that TensorBoard shows."""

    def __init__(self, folder: Path) -> None:
        # Imported here: it takes seconds, and a run may do without it.
        from torch.utils.tensorboard import SummaryWriter

        # Ten seconds instead of two minutes: somebody watches, and a kill loses what was not flushed.
        self._writer = SummaryWriter(log_dir=str(folder), flush_secs=10)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


def read_json_lines(path: Path) -> list[dict[str, float | None]]:
    """The records of a `JsonLines` file, without the last line if it was never finished."""
    *finished_lines, _unfinished = path.read_bytes().split(b"\n")
    return [_parsed(path, number, line) for number, line in enumerate(finished_lines, start=1)]


def _parsed(path: Path, number: int, line: bytes) -> dict[str, float | None]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise RunFolderError(f"{path}, line {number}: {error}; remove the line to read the others") from error
    if not isinstance(record, dict):
        raise RunFolderError(f"{path}, line {number}: {record!r} is not an object; remove the line to read the others")
    return record


def _finite_or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _drop_unfinished_line(path: Path) -> None:
    if path.exists():
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
