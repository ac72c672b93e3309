"""What a run's parts are doing, from counters that only grow: how busy each kind is, which environment is slowest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic

import numpy as np
from numpy.typing import NDArray

STRAGGLER_RATIO = 1.5
"""An environment that takes so many times the median is named."""
GAUGE_SECONDS = 1.0
"""Read no more often: shares of a shorter time flicker."""


@dataclass(frozen=True)
class Counters:
    """What the workers have counted so far."""

    waited_seconds: Mapping[str, float] = field(default_factory=dict)
    """By kind of worker, on average over its processes."""
    env_seconds: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """Seconds inside each environment; of none where no environment is waited for alone."""


ReadCounters = Callable[[], Counters]


@dataclass(frozen=True)
class SlowestEnv:
    """The environment that took longest since the last look, where it stands out."""

    env: int
    step_seconds: float
    ratio: float
    """How many times as long as the median of all environments."""


class Gauges:
    """Shares of the time between two looks."""

    def __init__(self, read: ReadCounters) -> None:
        self._read = read
        self._before: tuple[float, int, Counters] | None = None
        self.busy: dict[str, float] = {}
        """Share of time that each kind did not wait, from 0 to 1."""
        self.slowest: SlowestEnv | None = None

    def look(self, steps: int) -> None:
        """Read the counters, unless that was a moment ago; `steps` are those of all environments so far."""
        now = monotonic()
        if self._before is not None and now < self._before[0] + GAUGE_SECONDS:
            return
        counters = self._read()
        if self._before is not None:
            self._compare(self._before, (now, steps, counters))
        self._before = (now, steps, counters)

    def _compare(self, before: tuple[float, int, Counters], now: tuple[float, int, Counters]) -> None:
        seconds = now[0] - before[0]
        for kind, waited in now[2].waited_seconds.items():
            share = 1.0 - (waited - before[2].waited_seconds.get(kind, 0.0)) / seconds
            self.busy[kind] = min(max(share, 0.0), 1.0)
        spent = now[2].env_seconds - before[2].env_seconds
        steps_each = (now[1] - before[1]) / max(len(spent), 1)
        usual = float(np.sort(spent)[(len(spent) - 1) // 2]) if len(spent) else 0.0
        if steps_each > 0 and usual > 0:
            env = int(spent.argmax())
            slowest = SlowestEnv(env, float(spent[env]) / steps_each, float(spent[env]) / usual)
            self.slowest = slowest if slowest.ratio >= STRAGGLER_RATIO else None
