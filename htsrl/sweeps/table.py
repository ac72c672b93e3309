"""A table of runs or trials on the terminal: live where it can be redrawn, elsewhere lines of each now and then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from htsrl.metrics.line_file import warn_on_stderr
from htsrl.metrics.pace import MAX_PLAIN_SECONDS, Pace
from htsrl.metrics.progress import Mode, resolved
from htsrl.plain_files import printable

LIVE_SECONDS = 1 / 8
UNDER_WAY_SECONDS = 10.0
"""Between plain lines of one row at first; of a long run they grow rarer."""
MAX_ROWS = 20
"""Of a live table: the newest."""


def short(value: Any) -> str:
    """A value as people write it."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return "x".join(map(str, value)) if isinstance(value, tuple | list) else printable(str(value))


class Table:
    """Rows by key, the first cells first."""

    def __init__(self, title: str, columns: Sequence[str], mode: Mode) -> None:
        self._title, self._columns = title, columns
        self._mode = "plain" if resolved(mode) == "verbose" else resolved(mode)
        self._rows: dict[Any, Sequence[str]] = {}
        self._pace = Pace(LIVE_SECONDS)
        self._row_paces: dict[Any, Pace] = {}
        self._live: Any = None

    def __enter__(self) -> Table:
        if self._mode == "live":
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True)
            self._live = Live(self._drawing(), console=console, auto_refresh=False, redirect_stdout=False)
            self._live.start(refresh=True)
        elif self._mode == "plain":
            warn_on_stderr(printable(self._title))
        return self

    def show(self, key: Any, cells: Sequence[str], is_final: bool) -> None:
        """A row's cells as they are now; plain output has those under way now and then, and final ones always."""
        has_changed = self._rows.get(key) != cells
        self._rows[key] = cells
        if self._live is not None and (is_final or self._pace.is_due()):
            self._live.update(self._drawing(), refresh=True)
        elif self._mode == "plain" and has_changed and (is_final or self._is_due(key)):
            named = [f"{name} {cell}" for name, cell in zip(self._columns, cells, strict=True) if cell]
            warn_on_stderr("  ".join(named))

    def _is_due(self, key: Any) -> bool:
        return self._row_paces.setdefault(key, Pace(UNDER_WAY_SECONDS, MAX_PLAIN_SECONDS)).is_due()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.update(self._drawing(), refresh=True)
            self._live.stop()

    def _drawing(self) -> Any:
        from rich.table import Table as RichTable
        from rich.text import Text

        drawing = RichTable(title=Text(printable(self._title)), title_justify="left", box=None, pad_edge=False)
        for name in self._columns:
            drawing.add_column(name, no_wrap=True, overflow="ellipsis")
        rows: Mapping[Any, Sequence[str]] = dict(sorted(self._rows.items())[-MAX_ROWS:])
        for cells in rows.values():
            drawing.add_row(*map(Text, cells))
        return drawing
