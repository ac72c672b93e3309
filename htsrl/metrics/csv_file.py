"""Metrics as a table: a column for each, a row for each time they were written."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Mapping
from pathlib import Path

from htsrl.metrics.histograms import Histograms
from htsrl.metrics.line_file import PatientFile, Warn, warn_on_stderr
from htsrl.plain_files import read_plain

STEP = "step"


class CsvFile:
    """`metrics.csv`; when a metric is new, the file is written again with its column."""

    def __init__(self, path: Path, warn: Warn = warn_on_stderr, last_step: int = 0) -> None:
        """A file that is there is continued after the rows up to `last_step`."""
        self._path = path
        self._warn = warn
        self._names, rows = _read(path)
        kept = [row for row in rows if _step_of(row) <= last_step]
        self._file = self._rewritten(kept)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        new = [name for name in metrics if name not in self._names]
        if new:
            self._file.close()
            _, rows = _read(self._path)
            self._names += new
            self._file = self._rewritten(rows)
        cells = {STEP: str(step), **{name: repr(float(x)) for name, x in metrics.items() if math.isfinite(x)}}
        self._file.write(self._line(cells))

    def write_histograms(self, step: int, histograms: Histograms) -> None:
        """A table has no place for them; `histograms.jsonl` does."""

    def close(self) -> None:
        self._file.close()

    def _rewritten(self, rows: list[dict[str, str]]) -> PatientFile:
        """The file with these rows and a column for each name, whole or as it was."""
        temporary = self._path.with_name(f"{self._path.name}.tmp")
        header = {name: name for name in (STEP, *self._names)}
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(b"".join(self._line(row) for row in (header, *rows)))
        temporary.replace(self._path)
        return PatientFile(self._path, self._warn)

    def _line(self, cells: Mapping[str, str]) -> bytes:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow([cells.get(name, "") for name in (STEP, *self._names)])
        return text.getvalue().encode()


def _read(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Column names without the step, and rows; a last line that a kill has cut is left out."""
    if not path.exists():
        return [], []
    text = read_plain(path).decode(errors="replace")
    rows = list(csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1])))
    names = list(rows[0]) if rows else []
    return [name for name in names if name != STEP], rows


def _step_of(row: Mapping[str, str]) -> float:
    try:
        return int(row[STEP])
    except (KeyError, ValueError, TypeError):
        return math.inf
