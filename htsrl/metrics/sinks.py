"""Where metrics are written: a JSON-lines file, TensorBoard."""

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from htsrl.errors import RunFolderError
from htsrl.metrics.histograms import Histogram, Histograms
from htsrl.metrics.line_file import LineFile, PatientFile, Warn, warn_on_stderr
from htsrl.plain_files import parsed, read_plain


class Sink(Protocol):
    """Takes the metrics of a run as they come."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def write_histograms(self, step: int, histograms: Histograms) -> None: ...

    def close(self) -> None: ...


class JsonLines:
    """One JSON object per line, `{"step": 2048, "time/fps": 8123.0, ...}`; what is not finite becomes null."""

    def __init__(self, path: Path, warn: Warn = warn_on_stderr) -> None:
        self._file = LineFile(path, warn)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        assert "step" not in metrics, "a metric called step would replace the step itself"
        record = {"step": step, **{name: _finite_or_none(value) for name, value in metrics.items()}}
        self._file.write(json.dumps(record, allow_nan=False))

    def write_histograms(self, step: int, histograms: Histograms) -> None:
        """In their compact form: the range, and how many lie in each of its equal parts."""
        document = {name: of.document() for name, of in histograms.items()}
        self._file.write(json.dumps({"step": step, **document}, allow_nan=False))

    def sync(self) -> None:
        """Have all lines on the disk, not only with the operating system; raises OSError where the disk refuses."""
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class TensorBoard:
    """An event file that TensorBoard shows; a resumed run hides what earlier files say of later steps.

    Not through TensorBoard's own writer: at the first full disk its thread dies with a traceback, and it stays broken.
    """

    def __init__(self, folder: Path, warn: Warn = warn_on_stderr, purge_step: int | None = None) -> None:
        # Imported here: it takes half a second, and a run may do without it.
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # type: ignore[import-untyped]
        from tensorboard.summary.writer.record_writer import RecordWriter  # type: ignore[import-untyped]

        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # TensorBoard reads the files of a folder by name. Microseconds keep a run and its continuation in order.
        name = f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}.{os.getpid()}"
        self._file = PatientFile(folder / name, warn)
        self._records = RecordWriter(self._file)
        self._event = Event
        self._add(file_version="brain.Event:2")
        if purge_step is not None:
            self._add(step=purge_step, session_log=SessionLog(status=SessionLog.START))

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        scalars = [{"tag": name, "simple_value": float(value)} for name, value in metrics.items()]
        self._add(step=step, summary={"value": scalars})

    def write_histograms(self, step: int, histograms: Histograms) -> None:
        values = [{"tag": f"{name}_hist", "histo": _tensorboard_histogram(of)} for name, of in histograms.items()]
        self._add(step=step, summary={"value": values})

    def close(self) -> None:
        self._file.close()

    def _add(self, **content: Any) -> None:
        self._records.write(self._event(wall_time=time.time(), **content).SerializeToString())


def _tensorboard_histogram(histogram: Histogram) -> dict[str, Any]:
    return {
        "min": histogram.low,
        "max": histogram.high,
        "num": float(sum(histogram.counts)),
        "sum": histogram.total,
        "sum_squares": histogram.sum_of_squares,
        "bucket_limit": histogram.upper_edges,
        "bucket": [float(count) for count in histogram.counts],
    }


def read_json_lines(path: Path) -> list[dict[str, float | None]]:
    """The records of a `JsonLines` file, without the last line if it was never finished."""
    try:
        *finished_lines, _unfinished = read_plain(path).split(b"\n")
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read: {error.strerror}") from error
    return [_parsed(path, number, line) for number, line in enumerate(finished_lines, start=1)]


def _parsed(path: Path, number: int, line: bytes) -> dict[str, float | None]:
    try:
        record = parsed(line)
    except ValueError as error:
        raise RunFolderError(f"{path}, line {number}: {error}; remove the line to read the others") from error
    if not isinstance(record, dict):
        raise RunFolderError(f"{path}, line {number}: {record!r} is not an object; remove the line to read the others")
    if odd := [name for name, value in record.items() if not _is_metric(value)]:
        raise RunFolderError(
            f"{path}, line {number}: {odd[0]!r} is no finite number; remove the line to read the others"
        )
    return record


def _is_metric(value: object) -> bool:
    """Whether `JsonLines` could have written it: what is not finite it writes as null."""
    try:
        return value is None or (isinstance(value, int | float) and math.isfinite(value))
    except OverflowError:  # an integer beyond all floats
        return False


def _finite_or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
