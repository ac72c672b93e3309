"""How far something has come, on stderr: nothing of what takes a moment, a line now and then of the rest."""

from __future__ import annotations

import sys
from contextlib import suppress
from types import TracebackType

from htsrl.metrics.line_file import warn_on_stderr
from htsrl.metrics.pace import PLAIN_SECONDS, Pace
from htsrl.metrics.progress import Mode, resolved

ERASE_LINE = "\r\x1b[K"


class LineProgress:
    """One line that is redrawn on a terminal, and gone in the end; a line every few seconds elsewhere."""

    def __init__(self, mode: Mode = "auto") -> None:
        self._mode = resolved(mode)
        self._pace = Pace(PLAIN_SECONDS)
        self._pace.is_due()  # the first time is now, and too early

    def __enter__(self) -> LineProgress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._mode == "live":
            self._write(ERASE_LINE)

    def show(self, line: str) -> None:
        """Replaces what was shown before."""
        if self._mode == "off" or not self._pace.is_due():
            return
        if self._mode == "live":
            self._write(ERASE_LINE + line)
        else:
            warn_on_stderr(line)

    def _write(self, text: str) -> None:
        with suppress(OSError):  # a terminal that is gone ends nothing
            sys.stderr.write(text)
            sys.stderr.flush()
