"""What workers tell the supervisor: one JSON object per line, over a pipe whose end also tells of their death."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import Any

from htsrl.checkpoint.background import Written
from htsrl.digest import Link
from htsrl.errors import (
    ConfigError,
    DatasetError,
    EnvironmentFailure,
    HtsrlError,
    NotReproduced,
    TrainingDiverged,
    WaitTimeout,
)
from htsrl.metrics.report import UpdateReport

READ_BYTES = 1 << 16


class ReportWriter:
    """A worker's end."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def update(self, report: UpdateReport) -> None:
        self._send({"kind": "update", **asdict(report)})

    def checkpoint(self, written: Written) -> None:
        self._send({"kind": "checkpoint", **asdict(written)})

    def preparing(self, done: bool) -> None:
        """A spare's: it begins with what is the user's code, or has that behind it."""
        self._send({"kind": "preparing", "done": done})

    def failure(self, error: BaseException, details: str) -> None:
        env = error.env if isinstance(error, EnvironmentFailure) else None
        self._send({"kind": "failure", "error": type(error).__name__, "message": details, "env": env})

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self._fd, data) :]


class ReportReader:
    """The supervisor's end: splits the bytes that arrive into messages."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.closed = False
        """Whether the worker has closed its end, by dying if not otherwise."""
        self._rest = b""

    def read(self) -> list[dict[str, Any]]:
        """All messages that have come since."""
        *lines, self._rest = (self._rest + self._read_all()).split(b"\n")
        return [json.loads(line) for line in lines]

    def _read_all(self) -> bytes:
        data = b""
        while True:
            try:
                part = os.read(self.fd, READ_BYTES)
            except BlockingIOError:
                return data
            if not part:
                self.closed = True
                return data
            data += part


def report_of(message: dict[str, Any]) -> UpdateReport:
    fields = _fields(message)
    return UpdateReport(**{**fields, "link": Link(**fields["link"])})


def written_of(message: dict[str, Any]) -> Written:
    return Written(**_fields(message))


def error_of(message: dict[str, Any]) -> HtsrlError:
    """The error a worker failed with; anything htsrl does not know becomes a plain HtsrlError."""
    for kind in (NotReproduced, EnvironmentFailure):
        if message["error"] == kind.__name__:
            return kind(message["message"], message["env"])
    known = {cls.__name__: cls for cls in (ConfigError, DatasetError, TrainingDiverged, WaitTimeout)}
    return known.get(message["error"], HtsrlError)(message["message"])


def _fields(message: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name != "kind"}
