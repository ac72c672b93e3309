"""Where tracks lie in shared memory: counters that hold for the whole run, and a ring of the newest spans.

Every row has one writer: a track its worker, an environment's row its executor, the barriers' the learner. All words
are 64 bits, which x86-64 writes and reads whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from htsrl.dataflow.shared_arrays import ArraySpec, SharedArrays
from htsrl.timeline.kinds import Kind

Words = NDArray[np.int64]
MAX_RECORDS = 2048
MIN_RECORDS = 64
ALL_RECORDS = 1 << 16
"""Of all tracks together: with hundreds of environments on threads, each has a smaller ring."""
NUM_BINS = 48
"""Of the histogram of step times: bin b counts steps of 2**(b-1) to 2**b nanoseconds."""
NOBODY = -1
"""The subject of spans that have none, or several."""


class Word(IntEnum):
    """The columns of a track."""

    HEAD = 0  # records written so far
    STARTED = 1  # when the first process of this worker began, by the clock of all processes, in nanoseconds
    AS_OF = 2  # up to when totals are complete
    PID = 3
    STARTS = 4  # processes that this worker has had
    CPU_NS = 5


class EnvWord(IntEnum):
    """The columns of an environment, before its histogram."""

    STEP_NS = 0
    STEP_MAX_NS = 1
    RESETS = 2
    RESET_NS = 3
    RESET_MAX_NS = 4


class Record(NamedTuple):
    """A span, as it lies in the ring."""

    kind: int
    start_ns: int
    duration_ns: int
    subject: int
    num_spans: int
    """It stands for so many of this kind; short ones are written together."""


@dataclass(frozen=True)
class TimelineShape:
    """How much there is to record."""

    num_tracks: int
    num_envs: int
    depth: int
    """Rollouts of one environment whose ends are remembered at a time."""

    @property
    def num_records(self) -> int:
        return min(MAX_RECORDS, max(MIN_RECORDS, ALL_RECORDS // max(self.num_tracks, 1)))

    def arrays(self) -> list[ArraySpec]:
        """By writer."""
        tracks, envs, depth = self.num_tracks, self.num_envs, self.depth
        return [
            ArraySpec("timeline_tracks", (tracks, len(Word)), "int64"),  # each worker, or thread, its own
            ArraySpec("timeline_totals", (tracks, len(Kind)), "int64"),  # the same
            ArraySpec("timeline_counts", (tracks, len(Kind)), "int64"),  # the same
            ArraySpec("timeline_records", (tracks, self.num_records, len(Record._fields)), "int64"),  # the same
            ArraySpec("timeline_envs", (envs, len(EnvWord) + NUM_BINS), "int64"),  # the environment's executor
            ArraySpec("timeline_rollouts", (envs, depth, 2), "int64"),  # the same: when it ended, nanoseconds inside
            ArraySpec("timeline_barriers", (depth, 3), "int64"),  # the learner: update + 1, when complete, the slowest
            ArraySpec("timeline_late", (envs, 2), "int64"),  # the learner: how often the slowest, nanoseconds in all
        ]


def copy_records(block: SharedArrays, track: int, most: int = MAX_RECORDS) -> list[Record]:
    """The newest records of a track, oldest first, while its worker continues writing; none of them is torn.

    A record counts once it is whole, so those before the first reading of the head were; and of what the writer may
    have begun to overwrite until the second, nothing is taken.
    """
    words, ring = block["timeline_tracks"][track], block["timeline_records"][track]
    head_before = int(words[Word.HEAD])
    copied = ring.copy()
    head_after = int(words[Word.HEAD])
    # The record after the head is perhaps under way, in the place of an older one.
    first = max(0, head_after + 1 - len(ring), head_before - most)
    rows = copied[np.arange(first, head_before) % len(ring)]
    return [Record._make(row) for row in rows.tolist()]
