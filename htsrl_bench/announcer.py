"""Says on stderr which run is under way, and what came of it."""

from __future__ import annotations

import sys


class Announcer:
    """A line per run, begun when it starts and ended when it is over; nothing is drawn while its time is measured."""

    def __init__(self, num_runs: int) -> None:
        self._num_runs = num_runs
        self._number = 0

    def begin(self, run: str, draws_below: bool = False) -> None:
        self._number += 1
        end = "\n" if draws_below else ""
        print(f"[{self._number}/{self._num_runs}] {run} ... ", end=end, file=sys.stderr, flush=True)

    def end(self, outcome: str) -> None:
        print(outcome, file=sys.stderr, flush=True)
