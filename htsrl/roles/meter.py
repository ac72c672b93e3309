"""Where the CPU time goes: seconds spent in the simulator, in inference, in learning, and in all.

Off unless asked for (`placement.measure_costs`): two readings of the clock cost 0.7 us, a CartPole step 12.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from htsrl.dataflow.exchange import Cost
from htsrl.metrics.report import UpdateReport

SIMULATOR_METHODS = ("step", "reset", "step_into", "reset_into", "begin_episodes")


class Meter:
    """Adds up one worker's CPU seconds in its row of shared memory."""

    def __init__(self, cpu_seconds: NDArray[Any]) -> None:
        self._cpu_seconds = cpu_seconds
        self._adding = threading.Lock()  # environments may step on threads
        self._before = float(cpu_seconds[Cost.TOTAL])  # of a worker that died in this one's place

    def watch(self, subject: Any, method: str, cost: Cost) -> None:
        """From now on, count the time of `subject.method(...)` as `cost`."""
        call, cpu_seconds = getattr(subject, method), self._cpu_seconds

        def timed(*arguments: Any, **named: Any) -> Any:
            start = time.thread_time()
            try:
                return call(*arguments, **named)
            finally:
                spent = time.thread_time() - start
                with self._adding:
                    cpu_seconds[cost] += spent

        setattr(subject, method, timed)

    def watch_simulator(self, env: Any) -> None:
        for method in SIMULATOR_METHODS:
            if hasattr(env, method):
                self.watch(env, method, Cost.SIMULATOR)

    def read_total_before(self, report: Callable[[UpdateReport], None]) -> Callable[[UpdateReport], None]:
        """Reports that find the total as up to date as its parts."""

        def report_in_time(update: UpdateReport) -> None:
            self.read_total()
            report(update)

        return report_in_time

    def read_total(self) -> None:
        self._cpu_seconds[Cost.TOTAL] = self._before + time.process_time()
