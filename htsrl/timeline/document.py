"""`timeline.json` in a run's folder: what every worker did lately, and totals for the whole run.

Written every few seconds and at the end, each time whole (a new file in place of the old one), at most some megabytes.
Times are in seconds since the run's start, or since it was resumed; durations in seconds.

    {"format": 1,
     "started_at": 1750000000.0,     when the run began, in seconds since 1970
     "written_at": 41.2,             when this was written
     "cores": 2,                     that the run may use
     "workers": [                    one for each process, and for each environment that steps on a thread
       {"name": "executor 0 with actor 0",
        "role": "executor",          executor, actor, learner, gradient worker, environment (a thread) or inline
        "pid": 4121,
        "starts": 1,                 processes that this worker has had; 2: it was started again once
        "started": 0.4, "as_of": 41.1,   the time that its totals are about
        "cpu_seconds": 38.0,
        "spans": [["step", 38.2, 0.004, 3], ...],    kind, start, duration, subject; by start, outer before inner
        "totals": {"step": 21.5, ...},   seconds by kind, without what is inside of other spans of the worker
        "counts": {"step": 51200, ...}}, ...],
     "environments": [
       {"env": 0, "worker": "executor 0 with actor 0",
        "steps": 12800, "seconds": 5.1, "max_seconds": 0.01,
        "histogram": [[0.000262144, 12000], [0.000524288, 800]],     steps that took up to so many seconds, and longer
                                                                     than half of it; bins without any are left out
        "resets": 60, "reset_seconds": 0.1, "max_reset_seconds": 0.002,
        "times_slowest": 4, "late_seconds": 0.1}, ...],     barriers at which the others waited for it, and how long
     "events": [["restart", 12.5, "executor 1"]]}

A span's subject is the environment of a step, a reset, a saved state and wait_slowest; the rows of an inference; the
version that an update makes; else null. Spans under a millisecond are written together: those of one kind within 20
milliseconds are one span, with null for a subject, and lie end to end. The kinds are those of `htsrl.timeline.kinds`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from htsrl.config.placement import available_cores
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.timeline.arrays import NOBODY, EnvWord, Record, Word, copy_records
from htsrl.timeline.kinds import Kind

FORMAT = 1
FILE_NAME = "timeline.json"
EVERY_SECONDS = 3.0
REST = 300
"""Times as long as the last writing took, at least: on a busy machine the file is written more rarely."""
MAX_LIVE_SPANS = 4_000
"""Of all workers, while the run continues."""
MAX_SPANS = 40_000
"""Of all workers, at the end."""
MAX_EVENTS = 1_000
LABELS = [kind.label for kind in Kind]
"""Found by a number many times as fast as a member of the enumeration."""


class TrackName(NamedTuple):
    """Whose track it is."""

    name: str
    role: str
    envs: tuple[int, ...] = ()
    """Those that are stepped there."""


class TimelineFile:
    """Writes the file of a run that is under way in this process or in others."""

    def __init__(self, block: SharedArrays, names: Sequence[TrackName], folder: Path) -> None:
        self._block = block
        self._names = names
        self._path = folder / FILE_NAME
        self._start_ns, self._started_at = time.monotonic_ns(), time.time()
        self._due_at = time.monotonic() + EVERY_SECONDS
        self._events: list[tuple[str, float, str]] = []

    def note_restart(self, worker: str) -> None:
        self._events = [*self._events[-MAX_EVENTS + 1 :], ("restart", self._seconds(time.monotonic_ns()), worker)]

    def write_if_due(self) -> None:
        """While the run continues; a file that cannot be written now may be later, and training does without."""
        begin = time.monotonic()
        if begin < self._due_at:
            return
        try:
            self._write(MAX_LIVE_SPANS)
        except OSError:
            pass
        end = time.monotonic()
        self._due_at = end + max(EVERY_SECONDS, REST * (end - begin))

    def write(self) -> None:
        """At the end; OSError where there is no room."""
        self._write(MAX_SPANS)

    def _write(self, max_spans: int) -> None:
        data = json.dumps(self.document(max_spans), separators=(",", ":")).encode()
        temporary = self._path.with_name(f"{FILE_NAME}.tmp")
        try:
            with open(temporary, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(data)
            os.replace(temporary, self._path)
        finally:
            temporary.unlink(missing_ok=True)

    def document(self, max_spans: int) -> dict[str, Any]:
        tracks = [track for track, words in enumerate(self._block["timeline_tracks"]) if words[Word.STARTED]]
        most = max_spans // max(len(tracks), 1)
        return {
            "format": FORMAT,
            "started_at": self._started_at,
            "written_at": self._seconds(time.monotonic_ns()),
            "cores": available_cores(),
            "workers": [self._worker(track, most) for track in tracks],
            "environments": [
                self._environment(env, self._names[track].name) for track in tracks for env in self._names[track].envs
            ],
            "events": self._events,
        }

    def _worker(self, track: int, max_spans: int) -> dict[str, Any]:
        words = self._block["timeline_tracks"][track].tolist()
        records = copy_records(self._block, track, max_spans)
        records.sort(key=lambda record: (record.start_ns, -record.duration_ns))
        totals, counts = (self._block[f"timeline_{what}"][track].tolist() for what in ("totals", "counts"))
        return {
            "name": self._names[track].name,
            "role": self._names[track].role,
            "pid": words[Word.PID],
            "starts": words[Word.STARTS],
            "started": self._seconds(words[Word.STARTED]),
            "as_of": self._seconds(words[Word.AS_OF]),
            "cpu_seconds": words[Word.CPU_NS] / 1e9,
            "spans": [self._span(record) for record in records],
            "totals": {kind.label: totals[kind] / 1e9 for kind in Kind if counts[kind]},
            "counts": {kind.label: counts[kind] for kind in Kind if counts[kind]},
        }

    def _span(self, record: Record) -> list[Any]:
        subject = None if record.subject == NOBODY else record.subject
        return [LABELS[record.kind], self._seconds(record.start_ns), record.duration_ns / 1e9, subject]

    def _environment(self, env: int, worker: str) -> dict[str, Any]:
        words, bins = (part.tolist() for part in _split(self._block["timeline_envs"][env]))
        times_slowest, late_ns = self._block["timeline_late"][env].tolist()
        return {
            "env": env,
            "worker": worker,
            "steps": sum(bins),
            "seconds": words[EnvWord.STEP_NS] / 1e9,
            "max_seconds": words[EnvWord.STEP_MAX_NS] / 1e9,
            "histogram": [[2**bits / 1e9, count] for bits, count in enumerate(bins) if count],
            "resets": words[EnvWord.RESETS],
            "reset_seconds": words[EnvWord.RESET_NS] / 1e9,
            "max_reset_seconds": words[EnvWord.RESET_MAX_NS] / 1e9,
            "times_slowest": times_slowest,
            "late_seconds": late_ns / 1e9,
        }

    def _seconds(self, clock_ns: int) -> float:
        return (clock_ns - self._start_ns) / 1e9


def _split(row: Any) -> tuple[Any, Any]:
    return row[: len(EnvWord)], row[len(EnvWord) :]
