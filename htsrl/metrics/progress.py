"""Progress on the terminal. Everything goes to stderr: stdout is for results."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Literal, Protocol

from htsrl.metrics.line_file import warn_on_stderr

if TYPE_CHECKING:
    from rich.console import RenderableType

LIVE_SECONDS = 1 / 8
PLAIN_SECONDS = 2.0


Mode = Literal["auto", "live", "plain", "off"]
"""`auto` is live on a terminal and plain lines elsewhere."""


class Progress(Protocol):
    """Shows how far a run has come."""

    def update(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def say(self, line: str) -> None:
        """Print a line that must not be lost."""

    def close(self) -> None: ...


def open_progress(mode: Mode, total_steps: int, title: str) -> Progress:
    """Start showing progress."""
    mode = resolved(mode)
    if mode == "live":
        return LiveProgress(total_steps, title)
    if mode == "plain":
        return PlainProgress(total_steps, title)
    return NoProgress()


class LiveProgress:
    """A bar and a line of readings, redrawn in place from `update`: no thread runs beside the training."""

    def __init__(self, total_steps: int, title: str) -> None:
        # Imported here: worker processes that import this module never draw.
        from rich.console import Console
        from rich.live import Live

        self._total_steps = total_steps
        self._title = title
        self._step = 0
        self._metrics: Mapping[str, float] = {}
        self._pace = Pace(LIVE_SECONDS)
        self._console = Console(stderr=True)
        # stdout is left alone: redirected, a result printed while the bar is up would end in stderr.
        self._live = Live(self._drawing(), console=self._console, auto_refresh=False, redirect_stdout=False)
        self._live.start(refresh=True)

    def update(self, step: int, metrics: Mapping[str, float]) -> None:
        self._step, self._metrics = step, metrics
        if self._pace.is_due():
            self._live.update(self._drawing(), refresh=True)

    def say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, emoji=False, soft_wrap=True)

    def close(self) -> None:
        self._live.update(self._drawing(show_eta=False))
        self._live.stop()

    def _drawing(self, show_eta: bool = True) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        bar = Table.grid(padding=(0, 2), expand=True)
        bar.add_column(no_wrap=True, overflow="ellipsis")
        bar.add_column(ratio=1)
        bar.add_column(no_wrap=True, overflow="ellipsis")
        done = f"{self._step:,}/{self._total_steps:,} steps"
        bar.add_row(Text(self._title), ProgressBar(self._total_steps, self._step), Text(done))

        readings = [
            _reading("return {:.1f}", self._metrics.get("rollout/ep_rew_mean")),
            _reading("length {:.0f}", self._metrics.get("rollout/ep_len_mean")),
            _reading("{:,.0f} steps/s", self._metrics.get("time/fps")),
            _reading("lag {:g}", self._metrics.get("hts/lag")),
            f"ETA {self._eta()}" if show_eta else None,
        ]
        line = "   ".join(reading for reading in readings if reading)
        # One line however narrow the terminal, or the next drawing would not cover this one.
        return Group(bar, Text(line, no_wrap=True, overflow="ellipsis"))

    def _eta(self) -> str:
        steps_per_second = self._metrics.get("time/fps", math.nan)
        if not (math.isfinite(steps_per_second) and steps_per_second > 0):
            return "-"
        seconds = max(0, self._total_steps - self._step) / steps_per_second
        return str(timedelta(seconds=round(seconds)))


class PlainProgress:
    """A line every few seconds, for log files and pipes."""

    def __init__(self, total_steps: int, title: str) -> None:
        self._total_steps = total_steps
        self._pace = Pace(PLAIN_SECONDS)
        self._unprinted: str | None = None
        self.say(title)

    def update(self, step: int, metrics: Mapping[str, float]) -> None:
        self._unprinted = self._line(step, metrics)
        if self._pace.is_due():
            self._print_latest()

    def say(self, line: str) -> None:
        warn_on_stderr(line)

    def close(self) -> None:
        self._print_latest()

    def _print_latest(self) -> None:
        if self._unprinted is not None:
            self.say(self._unprinted)
            self._unprinted = None

    def _line(self, step: int, metrics: Mapping[str, float]) -> str:
        readings = [
            f"step {step}/{self._total_steps}",
            _reading("return {:.1f}", metrics.get("rollout/ep_rew_mean")),
            _reading("length {:.0f}", metrics.get("rollout/ep_len_mean")),
            _reading("{:.0f} steps/s", metrics.get("time/fps")),
        ]
        return "  ".join(reading for reading in readings if reading)


class NoProgress:
    """Shows nothing but the lines that must not be lost."""

    def update(self, step: int, metrics: Mapping[str, float]) -> None:
        pass

    def say(self, line: str) -> None:
        warn_on_stderr(line)

    def close(self) -> None:
        pass


class Pace:
    """Says yes at most once in so many seconds, and the first time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due_at = -math.inf

    def is_due(self) -> bool:
        now = monotonic()
        if now < self._due_at:
            return False
        self._due_at = now + self._seconds
        return True


def _reading(pattern: str, value: float | None) -> str | None:
    """The value in words, or None while there is none: before the first episode has ended."""
    return pattern.format(value) if value is not None and math.isfinite(value) else None


def resolved(mode: Mode) -> Mode:
    """What `auto` is here."""
    if mode != "auto":
        return mode
    return "live" if _stderr_can_redraw() else "plain"


def _stderr_can_redraw() -> bool:
    # On a dumb terminal rich draws nothing until the end; plain lines show more.
    return sys.stderr.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
