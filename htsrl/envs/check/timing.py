"""How long steps and resets take, as numbers and as a picture of characters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from htsrl.envs.check.calls import Call

Seconds = NDArray[np.float64]
BARS = 10
BAR_WIDTH = 50


@dataclass(frozen=True)
class Spread:
    """A distribution in a few numbers."""

    count: int
    mean: float
    p50: float
    p99: float
    std: float

    @classmethod
    def of(cls, values: Seconds) -> Spread:
        p50, p99 = np.percentile(values, [50, 99])
        return cls(len(values), float(values.mean()), float(p50), float(p99), float(values.std()))

    @property
    def cv(self) -> float:
        """Standard deviation over mean."""
        return self.std / self.mean if self.mean else 0.0

    def __str__(self) -> str:
        numbers = (("mean", self.mean), ("p50", self.p50), ("p99", self.p99), ("std", self.std))
        return ", ".join(f"{name} {shown_seconds(value)}" for name, value in numbers) + f", cv {self.cv:.2f}"


@dataclass(frozen=True)
class StepTimes:
    """Measured over the calls of one environment that had a core to itself, as far as the machine allowed."""

    step_seconds: Seconds
    reset_seconds: Seconds
    turn_seconds: Seconds
    """A step, and the reset that followed it where the episode ended: what a rollout is made of."""
    cpu_share: float
    """Of a usual step, how much of its time this process spent computing: the median of the steps' shares."""
    episode_steps: NDArray[np.int64]
    """Lengths of the episodes that ended; where none did, how far the first one came."""
    any_ended: bool

    @classmethod
    def of(cls, calls: Sequence[Call]) -> StepTimes:
        steps = [call for call in calls if call.step]
        resets = [call for call in calls if not call.step]
        step_seconds = np.array([call.seconds for call in steps])
        turn_seconds = step_seconds.copy()
        ends = [number for number, call in enumerate(steps) if call.ended]
        for number, reset in zip(ends, resets[1:], strict=False):
            turn_seconds[number] += reset.seconds
        shares = [min(call.cpu_seconds / call.seconds, 1.0) for call in steps if call.seconds]
        return cls(
            step_seconds=step_seconds,
            reset_seconds=np.array([call.seconds for call in resets]),
            turn_seconds=turn_seconds,
            cpu_share=float(np.median(shares)) if shares else 1.0,
            episode_steps=np.array([steps[number].step for number in ends] or [steps[-1].step]),
            any_ended=bool(ends),
        )

    @property
    def long_episode_steps(self) -> int:
        """The length that 99 % of the episodes do not exceed."""
        return int(np.ceil(np.percentile(self.episode_steps, 99)))

    @property
    def replay_seconds(self) -> float:
        """What it takes to play a long episode again."""
        return float(self.reset_seconds.mean() + self.long_episode_steps * self.step_seconds.mean())


def histogram(seconds: Seconds) -> list[str]:
    """Steps by their time, a bar for each of a few ranges; ranges grow by a factor, for the tail is long."""
    low, high = max(float(seconds.min()), 1e-9), float(seconds.max())
    edges = np.geomspace(low, max(high, low * 1.01), BARS + 1)
    edges[0], edges[-1] = 0.0, np.inf
    counts, _ = np.histogram(seconds, edges)
    shown_edges = [*map(shown_seconds, np.geomspace(low, max(high, low * 1.01), BARS + 1))]
    lines = [f"time of a step ({len(seconds):,} steps)"]
    for number, count in enumerate(counts):
        bar = "#" * int(np.ceil(BAR_WIDTH * count / counts.max()))
        lines.append(f"{shown_edges[number]:>8} to {shown_edges[number + 1]:>8} {count:>7,} {bar}".rstrip())
    return lines


def shown_seconds(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
