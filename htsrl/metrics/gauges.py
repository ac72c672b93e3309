"""What a run's parts are doing, from counters that only grow: how busy each kind is, which environment is slowest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from htsrl.metrics.stragglers import are_stragglers, times_median

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
    """The environment that took longest since the last look, where it stood out before as well."""

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
        self._stood_out: int | None = None

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
        spent = (now[2].env_seconds - before[2].env_seconds).tolist()
        steps_each = (now[1] - before[1]) / max(len(spent), 1)
        ratios = times_median(spent)
        if steps_each <= 0 or not any(ratios):
            return
        env = max(range(len(ratios)), key=ratios.__getitem__)
        # Of a short time one that lost its core for a moment stands out as well, but hardly twice.
        stood_out, self._stood_out = self._stood_out, env if are_stragglers(ratios)[env] else None
        is_slow = self._stood_out is not None and stood_out == env
        self.slowest = SlowestEnv(env, spent[env] / steps_each, ratios[env]) if is_slow else None
