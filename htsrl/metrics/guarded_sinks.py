"""Sinks that cannot hurt a run: what fails or hangs in one costs a warning and a count, never training."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping

from htsrl.metrics.histograms import Histograms
from htsrl.metrics.line_file import Warn
from htsrl.metrics.sinks import Sink

MAX_QUEUE = 1024
CLOSE_SECONDS = 30.0
"""So long a sink may take to send what it still has when the run is over."""

Call = Callable[[Sink], None]


class GuardedSink:
    """Calls a sink on the run's own thread: for those that write a file and are done."""

    def __init__(self, name: str, make: Callable[[], Sink], warn: Warn) -> None:
        self._name = name
        self._warn = warn
        self._sink: Sink | None = None
        self.failures = 0
        try:
            self._sink = make()
        except Exception as error:
            self._note_failure("could not be opened", error)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._call(lambda sink: sink.write(step, metrics))

    def write_histograms(self, step: int, histograms: Histograms) -> None:
        self._call(lambda sink: sink.write_histograms(step, histograms))

    def close(self) -> None:
        self._call(lambda sink: sink.close())

    def _call(self, call: Call) -> None:
        if self._sink is None:
            return
        try:
            call(self._sink)
        except Exception as error:
            self._note_failure("failed", error)

    def _note_failure(self, what: str, error: Exception) -> None:
        self.failures += 1
        if self.failures == 1:
            self._warn(
                f"warning: the sink {self._name} {what} ({type(error).__name__}: {error}); training continues, "
                "metrics.jsonl has everything, and further failures are counted"
            )


class ThreadedSink:
    """Calls a sink on a thread of its own, from opening to closing: for those that may wait for a server."""

    def __init__(self, name: str, make: Callable[[], Sink], warn: Warn, close_seconds: float = CLOSE_SECONDS) -> None:
        self._name = name
        self._make = make
        self._warn = warn
        self._close_seconds = close_seconds
        self._calls: queue.Queue[Call | None] = queue.Queue(MAX_QUEUE)
        self._guarded: GuardedSink | None = None
        self._dropped = 0
        self._was_given_up = False
        self._thread = threading.Thread(target=self._work, name=f"htsrl-sink-{name}", daemon=True)
        self._thread.start()

    @property
    def failures(self) -> int:
        """Calls that raised or that there was no room for, and whether it could not be closed."""
        return (self._guarded.failures if self._guarded else 0) + self._dropped + self._was_given_up

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        own = dict(metrics)
        self._put(lambda sink: sink.write(step, own))

    def write_histograms(self, step: int, histograms: Histograms) -> None:
        self._put(lambda sink: sink.write_histograms(step, histograms))

    def close(self) -> None:
        try:
            self._calls.put(None, timeout=self._close_seconds)
        except queue.Full:
            pass
        self._thread.join(self._close_seconds)
        if self._thread.is_alive():
            self._was_given_up = True
            self._warn(
                f"warning: the sink {self._name} did not end within {self._close_seconds:g} seconds and is left alone; "
                "metrics.jsonl has everything"
            )

    def _put(self, call: Call) -> None:
        try:
            self._calls.put_nowait(call)
        except queue.Full:
            self._dropped += 1
            if self._dropped == 1:
                self._warn(
                    f"warning: the sink {self._name} is {MAX_QUEUE} writes behind, and misses some from here on; "
                    "training continues, metrics.jsonl has everything"
                )

    def _work(self) -> None:
        self._guarded = GuardedSink(self._name, self._make, self._warn)
        while (call := self._calls.get()) is not None:
            self._guarded._call(call)
        self._guarded.close()
