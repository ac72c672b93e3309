"""Progress on the terminal. Everything goes to stderr: stdout is for results."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Literal, Protocol

from htsrl.metrics.gauges import Counters, ReadCounters
from htsrl.metrics.line_file import warn_on_stderr
from htsrl.metrics.live import LiveProgress
from htsrl.metrics.pace import MAX_PLAIN_SECONDS, PLAIN_SECONDS, Pace
from htsrl.metrics.readings import reading

Mode = Literal["auto", "live", "plain", "verbose", "off"]
"""`auto` is live on a terminal and plain lines elsewhere; `verbose` is plain lines as often as at the beginning, and
one for every checkpoint."""

ALWAYS_SHOWN = {"eval", "starting"}
"""Kinds of notes that plain lines have too."""


class Progress(Protocol):
    """Shows how far a run has come."""

    def update(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def say(self, line: str) -> None:
        """Print a line that must not be lost."""

    def note(self, kind: str, text: str) -> None:
        """The newest of its kind: a checkpoint, an evaluation."""

    def stall(self, seconds: float, text: str) -> None:
        """No update has come for so long; called about once a second until one does."""

    def close(self) -> None: ...


def open_progress(mode: Mode, total_steps: int, title: str, read_counters: ReadCounters = Counters) -> Progress:
    """Start showing progress."""
    mode = resolved(mode)
    if mode == "live":
        return LiveProgress(total_steps, title, read_counters)
    if mode in ("plain", "verbose"):
        return PlainProgress(total_steps, title, is_verbose=mode == "verbose")
    return NoProgress()


class PlainProgress:
    """A line every few seconds, and of a long run every few minutes, for log files and pipes."""

    def __init__(self, total_steps: int, title: str, is_verbose: bool = False) -> None:
        self._total_steps = total_steps
        self._is_verbose = is_verbose
        self._pace = Pace(PLAIN_SECONDS, PLAIN_SECONDS if is_verbose else MAX_PLAIN_SECONDS)
        self._unprinted: str | None = None
        self._next_stall = 0.0
        self.say(title)

    def update(self, step: int, metrics: Mapping[str, float]) -> None:
        self._unprinted = self._line(step, metrics)
        self._next_stall = 0.0
        if self._pace.is_due():
            self._print_latest()

    def say(self, line: str) -> None:
        warn_on_stderr(line)

    def note(self, kind: str, text: str) -> None:
        if self._is_verbose or kind in ALWAYS_SHOWN:
            self.say(f"{kind} {text}")

    def stall(self, seconds: float, text: str) -> None:
        """A line each time that it has lasted twice as long."""
        if seconds >= self._next_stall:
            self._print_latest()
            self.say(text)
            self._next_stall = 2 * seconds

    def close(self) -> None:
        self._print_latest()

    def _print_latest(self) -> None:
        if self._unprinted is not None:
            self.say(self._unprinted)
            self._unprinted = None

    def _line(self, step: int, metrics: Mapping[str, float]) -> str:
        readings = [
            f"step {step}/{self._total_steps}",
            reading("return {:.1f}", metrics.get("rollout/ep_rew_mean")),
            reading("length {:.0f}", metrics.get("rollout/ep_len_mean")),
            reading("{:.0f} steps/s", metrics.get("time/fps")),
            reading("lag {:g}", metrics.get("hts/lag")) if self._is_verbose else None,
        ]
        return "  ".join(part for part in readings if part)


class NoProgress:
    """Shows nothing but the lines that must not be lost."""

    def update(self, step: int, metrics: Mapping[str, float]) -> None:
        pass

    def say(self, line: str) -> None:
        warn_on_stderr(line)

    def note(self, kind: str, text: str) -> None:
        pass

    def stall(self, seconds: float, text: str) -> None:
        pass

    def close(self) -> None:
        pass


def resolved(mode: Mode) -> Mode:
    """What `auto` is here."""
    if mode != "auto":
        return mode
    return "live" if _stderr_can_redraw() else "plain"


def _stderr_can_redraw() -> bool:
    # On a dumb terminal rich draws nothing until the end; plain lines show more.
    return sys.stderr.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
