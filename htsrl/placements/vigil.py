"""Notices who works without getting anywhere."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

LOOKS_PER_DEADLINE = 10
MAX_PAUSE_SECONDS = 1.0


class Vigil:
    """Looks, every now and then, at signs of progress."""

    def __init__(self, deadline_seconds: float, num_signs: int) -> None:
        self._deadline_seconds = deadline_seconds
        self.pause_seconds = min(MAX_PAUSE_SECONDS, deadline_seconds / LOOKS_PER_DEADLINE)
        self._signs: list[Hashable] = [None] * num_signs
        self._since = [0.0] * num_signs
        self._last_look = 0.0

    def overdue(self, now: float, signs: Sequence[Hashable]) -> list[int]:
        """The places of signs that have not changed for longer than the deadline; None is that of one who waits.

        If nobody looked for long, this process was itself stopped, and the others perhaps as well: it all begins anew.
        """
        if now - self._last_look > self._deadline_seconds / 2 + MAX_PAUSE_SECONDS:
            self._signs = [None] * len(self._signs)
        self._last_look = now
        found = []
        for place, sign in enumerate(signs):
            if sign is None or sign != self._signs[place]:
                self._signs[place], self._since[place] = sign, now
            elif now - self._since[place] > self._deadline_seconds:
                found.append(place)
        return found

    def forget(self, place: int) -> None:
        self._signs[place] = None
