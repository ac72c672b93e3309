"""Notices who works without getting anywhere."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

LOOKS_PER_DEADLINE = 10
LONGEST_PAUSE_SECONDS = 1.0


class Vigil:
    """Looks, every now and then, at a sign of progress of each worker."""

    def __init__(self, deadline_seconds: float, num_workers: int) -> None:
        self._deadline_seconds = deadline_seconds
        self.pause_seconds = min(LONGEST_PAUSE_SECONDS, deadline_seconds / LOOKS_PER_DEADLINE)
        self._signs: list[Hashable] = [None] * num_workers
        self._since = [0.0] * num_workers
        self._last_look = 0.0

    def overdue(self, now: float, signs: Sequence[Hashable]) -> list[int]:
        """The workers whose sign has not changed for longer than the deadline; None is that of one who waits.

        If nobody looked for long, this process was itself stopped, and the others perhaps as well: it all begins anew.
        """
        if now - self._last_look > self._deadline_seconds / 2 + LONGEST_PAUSE_SECONDS:
            self._signs = [None] * len(self._signs)
        self._last_look = now
        found = []
        for worker, sign in enumerate(signs):
            if sign is None or sign != self._signs[worker]:
                self._signs[worker], self._since[worker] = sign, now
            elif now - self._since[worker] > self._deadline_seconds:
                found.append(worker)
        return found

    def forget(self, worker: int) -> None:
        self._signs[worker] = None
