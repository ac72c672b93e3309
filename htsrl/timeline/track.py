"""A worker's track: it adds up what the worker does, kind by kind, and keeps the newest spans in a ring.

A step of a small environment takes microseconds, so short spans cost no record of their own: those of one kind within
a window are written as one record, laid end to end from the window's beginning. Spans of a millisecond and more are
written one by one.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from time import monotonic_ns as now
from typing import Any, TypeVar

from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.timeline.arrays import NOBODY, Record, Word
from htsrl.timeline.kinds import Kind

LONG_NS = 1_000_000
WINDOW_NS = 20_000_000
QUICK_NS = 200_000
TIMED_BATCHES = 8
CPU_EVERY_NS = 5_000_000_000
"""Reading a process's CPU time is a system call that takes milliseconds on some kernels."""
HEAD, AS_OF, CPU_NS = int(Word.HEAD), int(Word.AS_OF), int(Word.CPU_NS)
"""Plain numbers: members of an enumeration take longer to find."""
Call = TypeVar("Call", bound=Callable[..., Any])


class Track:
    """One writer's; a worker that is started again continues the track of the one that died."""

    def __init__(
        self,
        block: SharedArrays,
        number: int,
        start_ns: int | None = None,
        cpu_clock: Callable[[], int] = time.process_time_ns,
    ) -> None:
        """`start_ns` is when the process began with its work; `cpu_clock` is that of the process, or of the thread."""
        self._words = memoryview(block["timeline_tracks"][number])
        self._totals = memoryview(block["timeline_totals"][number])
        self._counts = memoryview(block["timeline_counts"][number])
        records = block["timeline_records"][number]
        self._ring, self._num_records = memoryview(records.reshape(-1)).cast("B"), len(records)
        self._record = struct.Struct(f"{len(Record._fields)}q")
        self._cpu_clock = cpu_clock
        self._cpu_before = self._words[Word.CPU_NS] - cpu_clock()
        self._cpu_due = 0
        self._short_ns = [0] * len(Kind)
        self._short_counts = [0] * len(Kind)
        self._short_kinds: list[int] = []  # those of which there are any in the window
        self._nested_ns = [0]  # inside each span that is open, below them those that are in none
        self._window_start = now() if start_ns is None else start_ns
        self._words[Word.STARTED] = self._words[Word.STARTED] or self._window_start
        self._words[Word.PID] = os.getpid()
        self._words[Word.STARTS] += 1

    def add(self, kind: Kind, start: int, end: int, subject: int = NOBODY) -> None:
        """A span with nothing inside."""
        duration = end - start
        self._nested_ns[-1] += duration
        if duration >= LONG_NS:
            self.flush(start)
            self._totals[kind] += duration
            self._counts[kind] += 1
            self._put(kind, start, duration, subject, 1)
            self._window_start = self._words[AS_OF] = end
            return
        self.add_short(kind, duration, 1, end)

    def add_short(self, kind: Kind, duration: int, count: int, end: int) -> None:
        """Spans under a millisecond, until `end`, with nothing inside; of some the duration may be an estimate."""
        if not self._short_counts[kind]:
            self._short_kinds.append(kind)
        self._short_ns[kind] += duration
        self._short_counts[kind] += count
        if end - self._window_start >= WINDOW_NS:
            self.flush(end)

    @contextmanager
    def span(self, kind: Kind, subject: int = NOBODY) -> Iterator[None]:
        """A span with others inside, whose time is theirs and not its own."""
        start = now()
        self.flush(start)
        self._nested_ns.append(0)
        try:
            yield
        finally:
            end = now()
            self.flush(end)
            duration = end - start
            self._totals[kind] += duration - self._nested_ns.pop()
            self._counts[kind] += 1
            self._nested_ns[-1] += duration
            self._put(kind, start, duration, subject, 1)

    def flush(self, end: int) -> None:
        """Write down the short spans of the window that ends."""
        at = self._window_start
        # Steps, of which some were not timed, come last: they took about so long, and not longer than there was time.
        for kind in sorted(self._short_kinds, reverse=True):
            duration = min(self._short_ns[kind], max(0, end - at))
            self._totals[kind] += duration
            self._counts[kind] += self._short_counts[kind]
            self._put(kind, at, duration, NOBODY, self._short_counts[kind])
            self._short_ns[kind] = self._short_counts[kind] = 0
            at += duration
        self._short_kinds.clear()
        self._window_start = self._words[AS_OF] = end
        if end >= self._cpu_due:
            self._words[CPU_NS] = self._cpu_before + self._cpu_clock()
            self._cpu_due = end + CPU_EVERY_NS

    def close(self) -> None:
        """Write down what is not yet."""
        self._cpu_due = 0
        self.flush(now())

    def _put(self, kind: int, start: int, duration: int, subject: int, count: int) -> None:
        head = self._words[HEAD]
        place = head % self._num_records * self._record.size
        self._record.pack_into(self._ring, place, kind, start, duration, subject, count)
        self._words[HEAD] = head + 1  # after the record, which counts from here on

    def timed(self, call: Call, kind: Kind, subject_of: Callable[..., int] = lambda *arguments: NOBODY) -> Call:
        """The same function, whose every call is a span with nothing inside."""

        def timed(*arguments: Any, **named: Any) -> Any:
            start = now()
            try:
                return call(*arguments, **named)
            finally:
                self.add(kind, start, now(), subject_of(*arguments))

        return timed  # type: ignore[return-value]

    def timed_batches(self, call: Call, kind: Kind) -> Call:
        """The same `call(version, cells)`; of quick ones one in eight is timed, and stands for those before it too."""
        untimed, rest = 0, 0

        def timed(version: int, cells: Sized) -> Any:
            nonlocal untimed, rest
            if rest:
                untimed, rest = untimed + 1, rest - 1
                return call(version, cells)
            start = now()
            outcome = call(version, cells)
            end = now()
            self.add(kind, start, end, len(cells))
            if untimed:
                self.add_short(kind, untimed * (end - start), untimed, end)
            untimed, rest = 0, TIMED_BATCHES - 1 if end - start < QUICK_NS else 0
            return outcome

        return timed  # type: ignore[return-value]

    def spanned(self, call: Call, kind: Kind) -> Call:
        """The same function, whose every call is a span that may have others inside."""

        def spanned(*arguments: Any, **named: Any) -> Any:
            with self.span(kind):
                return call(*arguments, **named)

        return spanned  # type: ignore[return-value]
