"""How often something is shown."""

from __future__ import annotations

import math
from time import monotonic

PLAIN_SECONDS = 2.0
MAX_PLAIN_SECONDS = 300.0
GROWTH = 1 / 20
"""A line says a twentieth more than the one before: of an hour's run every three minutes, of a day's every five."""


class Pace:
    """Says yes at most once in so many seconds, and the first time."""

    def __init__(self, seconds: float, max_seconds: float | None = None) -> None:
        """With `max_seconds` ever more rarely: after a time, a twentieth of it passes, up to so many."""
        self._seconds = seconds
        self._max_seconds = max_seconds or seconds
        self._began_at: float | None = None
        self._due_at = -math.inf

    def is_due(self) -> bool:
        now = monotonic()
        if self._began_at is None:
            self._began_at = now
        if now < self._due_at:
            return False
        self._due_at = now + min(max(self._seconds, GROWTH * (now - self._began_at)), self._max_seconds)
        return True
