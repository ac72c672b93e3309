"""The live view of a run on a terminal: at most four lines, redrawn in place."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from htsrl.metrics.gauges import Counters, Gauges, ReadCounters
from htsrl.metrics.pace import Pace
from htsrl.metrics.readings import bar_of, reading, sparkline

if TYPE_CHECKING:
    from rich.console import RenderableType

LIVE_SECONDS = 1 / 4
TREND_POINTS = 16
BAR_CELLS = (8, 6, 4, 2, 0)
"""Widths of a bar; the first with which nothing on its line is cut."""
KINDS = {"executor": "executors", "actor": "actors", "learner": "learner", "gradient_worker": "gradient workers"}


class LiveProgress:
    """Drawn from `update`: no thread runs beside the training."""

    def __init__(self, total_steps: int, title: str, read_counters: ReadCounters = Counters) -> None:
        # Imported here: worker processes that import this module never draw.
        from rich.console import Console
        from rich.live import Live

        self._total_steps = total_steps
        self._title = title
        self._step = 0
        self._metrics: Mapping[str, float] = {}
        self._trend = Trend(total_steps)
        self._gauges = Gauges(read_counters)
        self._events: dict[str, str] = {}
        self._stall = ""
        self._pace = Pace(LIVE_SECONDS)
        self._console = Console(stderr=True)
        self._is_unicode = self._console.encoding.lower().startswith("utf")
        # stdout is left alone: redirected, a result printed while the bar is up would end in stderr.
        self._live = Live(self._drawing(), console=self._console, auto_refresh=False, redirect_stdout=False)
        self._live.start(refresh=True)

    def update(self, step: int, metrics: Mapping[str, float]) -> None:
        self._step, self._metrics = step, metrics
        self._events.pop("starting", None)
        self._stall = ""
        self._trend.add(step, metrics.get("rollout/ep_rew_mean"))
        if self._pace.is_due():
            self._gauges.look(step)
            self._live.update(self._drawing(), refresh=True)

    def say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, emoji=False, soft_wrap=True)

    def note(self, kind: str, text: str) -> None:
        self._events[kind] = f"{kind} {text}"
        if kind == "starting":  # nothing else may redraw until the first update
            self._live.update(self._drawing(), refresh=True)

    def stall(self, seconds: float, text: str) -> None:
        self._stall = text
        self._live.update(self._drawing(), refresh=True)

    def close(self) -> None:
        self._stall = ""
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
        # While nothing is reported, shares and times of the last report tell less than what is waited for.
        doing = self._stall or self._utilisation()
        lines = [self._readings(show_eta and not self._stall), doing, "   ".join(self._events.values())]
        # One line each however narrow the terminal, or the next drawing would not cover this one.
        return Group(bar, *(Text(line, no_wrap=True, overflow="ellipsis") for line in lines if line))

    def _readings(self, show_eta: bool) -> str:
        trend = sparkline(self._trend.means, self._is_unicode)
        mean_return = reading("return {:.1f}", self._metrics.get("rollout/ep_rew_mean"))
        readings = [
            f"{mean_return} {trend}".rstrip() if mean_return else None,
            reading("length {:.0f}", self._metrics.get("rollout/ep_len_mean")),
            reading("{:,.0f} steps/s", self._metrics.get("time/fps")),
            reading("lag {:g}", self._metrics.get("hts/lag")),
            f"ETA {self._eta()}" if show_eta else None,
        ]
        return "   ".join(part for part in readings if part)

    def _utilisation(self) -> str:
        """How busy each kind of worker is, and the slowest environment where one stands out, in what room there is."""
        lines = [line for words in self._slowest() for cells in BAR_CELLS if (line := self._bars(cells, words))]
        return next((line for line in lines if len(line) <= self._console.width), lines[-1] if lines else "")

    def _bars(self, cells: int, slowest: str) -> str:
        busy = self._gauges.busy
        shares = [
            " ".join(filter(None, (name, bar_of(busy[kind], cells, self._is_unicode), f"{busy[kind]:4.0%}")))
            for kind, name in KINDS.items()
            if kind in busy
        ]
        return "   ".join(filter(None, (*shares, slowest)))

    def _slowest(self) -> list[str]:
        """In many words and in few."""
        if (slowest := self._gauges.slowest) is None:
            return [""]
        took, ratio = f"{slowest.step_seconds * 1000:.2g} ms a step", f"{slowest.ratio:.1f}x"
        return [f"slowest env {slowest.env}: {took}, {ratio} the median", f"env {slowest.env} {ratio} slower"]

    def _eta(self) -> str:
        steps_per_second = self._metrics.get("time/fps", math.nan)
        if not (math.isfinite(steps_per_second) and steps_per_second > 0):
            return "-"
        seconds = max(0, self._total_steps - self._step) / steps_per_second
        return str(timedelta(seconds=round(seconds)))


class Trend:
    """The mean return at steps evenly apart, the newest included."""

    def __init__(self, total_steps: int) -> None:
        self._apart = max(1, total_steps // 200)
        self._next = 0
        self._kept: deque[float] = deque(maxlen=TREND_POINTS - 1)
        self._newest: float | None = None

    def add(self, step: int, mean_return: float | None) -> None:
        if mean_return is None or not math.isfinite(mean_return):
            return
        if self._newest is not None and step >= self._next:
            self._kept.append(self._newest)
            self._next = step + self._apart
        self._newest = mean_return

    @property
    def means(self) -> list[float]:
        return [*self._kept, *([] if self._newest is None else [self._newest])]
