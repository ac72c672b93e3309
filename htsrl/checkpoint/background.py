"""Checkpoints while training continues: copied at a barrier, written by a thread, announced at a later barrier."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from htsrl.checkpoint.files import Checkpoint, prepare_checkpoint

RETRY_SECONDS = 30.0
LOOK_SECONDS = 0.1
"""How often one who waits for a checkpoint looks whether more of it is written."""
FIRST_SECONDS = 10.0
"""Until the first, so that a run that is killed early has something to continue from."""


@dataclass(frozen=True)
class Written:
    """How the writing of a checkpoint ended."""

    version: int
    mean_return: float | None
    path: str | None
    """The folder under its temporary name; None where it could not be written."""
    problem: str = ""


def write(folder: Path, checkpoint: Checkpoint, on_part: Callable[[], None] = lambda: None) -> Written:
    """Write it under a temporary name, or say why that cannot be."""
    version, mean_return = checkpoint.document["version"], checkpoint.document["mean_return"]
    try:
        return Written(version, mean_return, str(prepare_checkpoint(folder, checkpoint, on_part)))
    except OSError as error:
        return Written(version, mean_return, None, f"{error.strerror or error} ({folder})")


@dataclass(frozen=True)
class CheckpointTimes:
    """How often checkpoints are due, by count and by time."""

    every_updates: int | None
    every_seconds: float | None
    last: NDArray[Any]
    """The time of the last, one number in shared memory: a learner that dies often is due all the same."""


class BackgroundCheckpoints:
    """Decides at every barrier whether a checkpoint is due, and takes care of one at a time."""

    def __init__(
        self,
        folder: Path,
        times: CheckpointTimes,
        take: Callable[[int], Checkpoint],
        announce: Callable[[Written], None],
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        """`beat` is called while one is waited for, as long as more of it is written."""
        self._folder = folder
        self._every_updates = times.every_updates
        self._every_seconds = times.every_seconds
        self._take = take
        self._announce = announce
        self._beat = beat
        self._last_time = times.last
        if not self._last_time[0]:
            self._last_time[0] = time.monotonic() - max(0.0, (self._every_seconds or 0.0) - FIRST_SECONDS)
        self._thread: threading.Thread | None = None
        self._written: Written | None = None
        self._parts_written = 0  # by all threads so far, of which there is one at a time

    def at_barrier(self, version: int) -> None:
        """Called before update `version` begins, while nobody may change what it reads."""
        by_count = bool(self._every_updates and version and version % self._every_updates == 0)
        if by_count:
            self.finish()
        self._collect()
        by_time = self._every_seconds is not None and time.monotonic() >= self._last_time[0] + self._every_seconds
        if (by_count or by_time) and self._thread is None:
            self._begin(self._take(version))

    def finish(self) -> None:
        """Wait for the one that is being written, and announce it."""
        if self._thread is not None:
            while self._thread.is_alive():
                parts_before = self._parts_written
                self._thread.join(LOOK_SECONDS)
                if self._parts_written != parts_before:
                    self._beat()
            self._collect()

    def _begin(self, checkpoint: Checkpoint) -> None:
        self._thread = threading.Thread(target=self._write, args=(checkpoint,), daemon=True)
        self._thread.start()

    def _write(self, checkpoint: Checkpoint) -> None:
        try:
            self._written = write(self._folder, checkpoint, self._count_part)
        except Exception as error:  # whatever it is, training continues and the next one is tried
            version, mean_return = checkpoint.document["version"], checkpoint.document["mean_return"]
            self._written = Written(version, mean_return, None, f"{type(error).__name__}: {error}")

    def _count_part(self) -> None:
        self._parts_written += 1

    def _collect(self) -> None:
        if self._thread is None or self._thread.is_alive() or self._written is None:
            return
        self._announce(self._written)
        self._last_time[0] = time.monotonic()
        if self._written.path is None and self._every_seconds is not None:
            self._last_time[0] -= max(0.0, self._every_seconds - RETRY_SECONDS)
        self._thread = self._written = None
