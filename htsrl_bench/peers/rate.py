"""Steps per second of a run, from when its updates were done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Reading(NamedTuple):
    """How far a run was when an update was done."""

    steps: int
    seconds: float


@dataclass(frozen=True)
class Window:
    """Which part of a run is measured."""

    seconds: float
    warm_up_seconds: float
    """The clock starts with the last update within this of the first."""
    skipped_updates: int
    """But not before so many are done, and as many at least are measured. 1 where acting and learning take turns: an
    update begins where the one before it ended."""

    def rate(self, readings: Sequence[Reading]) -> float | None:
        """Steps per second from the start of the clock to the last update; None while it is too early to say."""
        if len(readings) <= self.skipped_updates:
            return None
        start = self._start(readings)
        first, last = readings[start], readings[-1]
        if len(readings) - 1 - start < self.skipped_updates or last.seconds - first.seconds < self.seconds:
            return None
        return (last.steps - first.steps) / (last.seconds - first.seconds)

    def _start(self, readings: Sequence[Reading]) -> int:
        warm_at = readings[0].seconds + self.warm_up_seconds
        last_cold = max(index for index, reading in enumerate(readings) if reading.seconds <= warm_at)
        return max(last_cold, self.skipped_updates - 1)


def parse(text: str) -> list[Reading]:
    """Lines `STEPS SECONDS`; one that is still being written has no end yet and is left out."""
    lines = [line.split() for line in text.split("\n")[:-1]]
    return [Reading(int(steps), float(seconds)) for steps, seconds in lines]
