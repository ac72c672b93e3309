"""Follows a run's metrics.jsonl as it grows, and keeps every metric thinned for show; the file itself is the truth."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from htsrl.dashboard.run_files import RunFiles, read_at
from htsrl.dashboard.series import Floats, Series
from htsrl.plain_files import parsed

METRICS_FILE = "metrics.jsonl"
CHUNK_BYTES = 2**18
"""Read at once; also the longest line that is read at all."""
MAX_METRICS = 400
MAX_ODD = 5
"""Notes on metrics that are none."""
MARK_BYTES = 64
"""So much before the place where reading continues is compared, to notice a file that was cut and grew again."""
SECONDS = "time/time_elapsed"

Record = dict[str, Any]


class MetricsReader:
    """What was read so far of one file, from its beginning: those of its numbers whose names have the prefix."""

    def __init__(self, files: RunFiles, file_name: str = METRICS_FILE, prefix: str = "") -> None:
        self._files = files
        self._file_name = file_name
        self._prefix = prefix
        self.version = 0
        """Changes whenever what is shown does."""
        self._clear()

    def _clear(self) -> None:
        self.series: dict[str, Series] = {}
        self.last: Record = {}
        self.num_bytes_read = 0
        self.num_bytes = 0
        self._mark = b""
        self._seconds = 0.0
        self._num_lines = 0
        self._skips_line = False
        self._bad_lines: list[int] = []
        self._num_bad_lines = 0
        self._odd: dict[str, str] = {}
        self._num_not_finite = 0
        self._refusal: str | None = None
        self.is_up_to_date = False
        """Whether the last whole line was read when `advance` was last called."""

    def advance(self) -> bool:
        """Read the next lines, a chunk of them; whether there may be more."""
        try:
            with self._files.opened(self._file_name) as descriptor:
                return self._advance(descriptor)
        except FileNotFoundError:
            if self.num_bytes:
                self._start_over()
        except OSError as error:
            self._refusal = f"{self._file_name} cannot be read: {error.strerror}"
        self.is_up_to_date = True
        return False

    def notes(self) -> list[str]:
        """What a reader should know of the file, in words."""
        notes = [self._refusal] if self._refusal else []
        if self._num_bad_lines:
            where = ", ".join(map(str, self._bad_lines))
            notes.append(
                f"{self._file_name}: {self._num_bad_lines:,} lines are not metrics and were left out (line {where}"
                f"{', ...' if self._num_bad_lines > len(self._bad_lines) else ''})"
            )
        notes += [f"{self._file_name}: {text}" for text in self._odd.values()]
        if self._num_not_finite:
            notes.append(f"{self._file_name}: {self._num_not_finite:,} values were not finite and are not drawn")
        return notes

    def _advance(self, descriptor: int) -> bool:
        self.num_bytes = os.fstat(descriptor).st_size
        begin = self.num_bytes_read
        if self.num_bytes < begin or read_at(descriptor, begin - len(self._mark), len(self._mark)) != self._mark:
            self._start_over()  # cut, as a resumed run does with what it will write again
            begin, self.num_bytes = 0, os.fstat(descriptor).st_size
        chunk = read_at(descriptor, begin, CHUNK_BYTES)
        end = chunk.rfind(b"\n") + 1
        if end:
            self._take(chunk[:end])
        elif len(chunk) == CHUNK_BYTES:  # a line without an end in sight
            end, self._skips_line = len(chunk), True
        self.num_bytes_read = begin + end
        if end:
            self._mark = chunk[max(0, end - MARK_BYTES) : end]
        self.is_up_to_date = len(chunk) < CHUNK_BYTES
        return not self.is_up_to_date

    def _start_over(self) -> None:
        self._clear()
        self.version += 1

    def _take(self, whole_lines: bytes) -> None:
        lines = whole_lines.split(b"\n")[:-1]
        if self._skips_line:
            self._reject(self._num_lines + 1)
            self._num_lines += 1
            del lines[0]
            self._skips_line = False
        records = self._records(lines)
        self._num_lines += len(lines)
        if records:
            self.last = records[-1]
            self._add(records)
        self.version += 1

    def _records(self, lines: Sequence[bytes]) -> list[Record]:
        """All in one go if that works, which is twice as fast, or else line by line."""
        try:
            together = parsed(b"[" + b",".join(lines) + b"]")
            if len(together) == len(lines) and all(map(_is_record, together)):
                return together  # type: ignore[no-any-return]
        except ValueError:
            pass
        records = []
        for number, line in enumerate(lines, start=self._num_lines + 1):
            record = _record(line)
            if record is None:
                self._reject(number)
            else:
                records.append(record)
        return records

    def _reject(self, number: int) -> None:
        self._num_bad_lines += 1
        if len(self._bad_lines) < 5:
            self._bad_lines.append(number)

    def _add(self, records: Sequence[Record]) -> None:
        steps = np.array([record["step"] for record in records], float)
        seconds = self._elapsed(records)
        for name in dict.fromkeys(name for record in records for name in record if name.startswith(self._prefix)):
            if name != "step" and (name in self.series or self._has_room(name)):
                values = self._numbers(name, [record.get(name) for record in records])
                known = np.isfinite(values)
                if not known.all():
                    self._num_not_finite += sum(name in records[i] for i in np.flatnonzero(~known).tolist())
                if known.any():
                    self.series.setdefault(name, Series()).extend(steps[known], seconds[known], values[known])

    def _has_room(self, name: str) -> bool:
        if len(self.series) < MAX_METRICS:
            return True
        self._odd["too many"] = f"more than {MAX_METRICS} metrics; {name[:80]!r} and others are not shown"
        return False

    def _elapsed(self, records: Sequence[Record]) -> Floats:
        """Seconds of training at each line; a line that does not say has those of the line before."""
        seconds = np.empty(len(records))
        for i, record in enumerate(records):
            value = record.get(SECONDS)
            if isinstance(value, float) and math.isfinite(value):
                self._seconds = value
            seconds[i] = self._seconds
        return seconds

    def _numbers(self, name: str, values: Sequence[Any]) -> Floats:
        """What is not a number becomes NaN and a note."""
        try:
            if {float, int, type(None)} >= set(map(type, values)):
                return np.array(values, float)
        except OverflowError:
            pass
        if name in self._odd or len(self._odd) < MAX_ODD:
            self._odd[name] = f"{name[:80]!r} is not always a number"
        return _as_floats(values)


def _as_floats(values: Sequence[Any]) -> Floats:
    floats = np.full(len(values), np.nan)
    for i, value in enumerate(values):
        if isinstance(value, float) or (type(value) is int and abs(value) < 2**63):
            floats[i] = value
    return floats


def _record(line: bytes) -> Record | None:
    try:
        record = parsed(line)
    except ValueError:
        return None
    return record if _is_record(record) else None


def _is_record(record: Any) -> bool:
    return isinstance(record, dict) and type(record.get("step")) is int and abs(record["step"]) < 2**63


def last_record(files: RunFiles, file_name: str = METRICS_FILE) -> Record:
    """Of the last whole line; empty where there is none."""
    try:
        with files.opened(file_name) as descriptor:
            num_bytes = os.fstat(descriptor).st_size
            tail = read_at(descriptor, max(0, num_bytes - 2**16), 2**16)
    except OSError:
        return {}
    for line in reversed(tail.split(b"\n")[:-1]):
        record = _record(line)
        if record is not None:
            return record
    return {}


def sampled(files: RunFiles, num_lines: int) -> dict[str, Series]:
    """Lines at even distances over the file: something to show at once while all of a large file is being read."""
    reader = MetricsReader(files)
    try:
        with files.opened(METRICS_FILE) as descriptor:
            num_bytes = os.fstat(descriptor).st_size
            lines = [_line_after(descriptor, offset) for offset in np.linspace(0, num_bytes, num_lines, dtype=int)]
    except OSError:
        return {}
    reader._take(b"".join(dict.fromkeys(line for line in lines if line)))
    return reader.series


def _line_after(descriptor: int, offset: int) -> bytes:
    """The first whole line that begins there or later; empty where none ends within reach."""
    for reach in (2**12, 2**16):
        piece = b"\n" + read_at(descriptor, offset, reach) if offset == 0 else read_at(descriptor, offset - 1, reach)
        begin = piece.find(b"\n") + 1
        end = piece.find(b"\n", begin) + 1
        if begin and end:
            return piece[begin:end]
    return b""
