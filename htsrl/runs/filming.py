"""Films beside training: a frozen version now and then, played and drawn by a process of its own.

One film is made at a time. A version that is due while one is being made is skipped and counted: nobody waits for one
but the end of the run, for the last.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import cloudpickle

from htsrl.checkpoint.snapshots import is_due, video_snapshot_file, video_snapshots_in, write_snapshot
from htsrl.config import Config, Experiment
from htsrl.errors import ConfigError
from htsrl.placements.worker_process import describe_exit
from htsrl.runs.folder import RunFolder
from htsrl.runs.side_process import SideProcess
from htsrl.spaces import Interface

if TYPE_CHECKING:
    from torch import nn

SEED = 0
"""The first episode that `htsrl eval` plays unless told otherwise."""
MAX_PROBLEM = 400


@dataclass(frozen=True)
class FilmJob:
    """What the process is told."""

    experiment: Experiment
    interface: Interface
    snapshot: Path
    path: Path
    seed: int


class Filming:
    """All calls come from the run's main thread; none of them waits but `finish`."""

    def __init__(self, config: Config, interface: Interface, folder: RunFolder, say: Callable[[str], None]) -> None:
        """Does nothing where the placement asks for no films."""
        self._every_steps, self._deadline = config.placement.video_every, config.placement.deadline_seconds
        self._experiment, self._interface = config.experiment, interface
        self._folder = folder
        self._say = say
        self._process: SideProcess | None = None
        self._errors: IO[bytes] | None = None
        self._version = self._newest = 0  # that is being filmed, and that was due last
        self.skipped = self.failed = 0
        if self._every_steps is not None:
            self._check_can_be_told()

    def after_update(self, version: int) -> None:
        """`version` is made; of the one before, if it is due, the learner has left a snapshot."""
        if self._every_steps is None:
            return
        self._collect()
        before = version - 1
        if before > self._newest and is_due(before, self._experiment.batch_steps, self._every_steps):
            self._newest = before
            self._film(before)

    def finish(self, version: int, policy: nn.Module | None) -> None:
        """Wait for what is being made, and film the last version; None: the run did not come to its end in order."""
        if self._every_steps is None:
            return
        try:
            if policy is not None:
                self._wait()
                if version > 0 and not self._path_of(version).exists():
                    self._film_last(version, policy)
        finally:
            self._end()
            shutil.rmtree(video_snapshots_in(self._folder.path), ignore_errors=True)
            if self.skipped > 1:
                self._say(f"films: {self.skipped} versions were skipped, for a film was being made when they were due")

    def _film_last(self, version: int, policy: nn.Module) -> None:
        try:
            write_snapshot(video_snapshot_file(self._folder.path, version), policy, version)
        except OSError as error:
            self._fail(version, str(error))
            return
        self._film(version)
        self._wait()

    def _path_of(self, version: int) -> Path:
        return self._folder.videos_dir / video_name(version * self._experiment.batch_steps, SEED, "mp4")

    def _film(self, version: int) -> None:
        snapshot, path = video_snapshot_file(self._folder.path, version), self._path_of(version)
        if self._process is not None:
            self._skip(snapshot)
        elif path.exists():  # of a run that was resumed: it would be the same again
            snapshot.unlink(missing_ok=True)
        elif not snapshot.is_file():
            self._fail(version, "there is no snapshot of it, perhaps the disk is full")
        else:
            self._version = version
            self._start(FilmJob(self._experiment, self._interface, snapshot, path, SEED))

    def _start(self, job: FilmJob) -> None:
        try:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed when the film is made)
            self._process = SideProcess("htsrl.video.process", cloudpickle.dumps(job), output=self._errors)
        except OSError as error:
            if self._errors is not None:
                self._errors.close()
            self._errors = None
            self._fail(self._version, str(error))

    def _collect(self) -> None:
        """Of a film that is made, or failed."""
        if self._process is None or not self._process.has_ended:
            return
        assert self._errors is not None
        if code := self._process.end():
            self._errors.seek(0)
            last = self._errors.read().decode(errors="replace").strip().splitlines()[-1:]
            reason = last[0][:MAX_PROBLEM] if last else f"its process {describe_exit(code)}"
            self._fail(self._version, reason)
        self._errors.close()
        video_snapshot_file(self._folder.path, self._version).unlink(missing_ok=True)
        self._process = self._errors = None

    def _wait(self) -> None:
        if self._process is not None:
            if not self._process.wait(self._deadline):
                self._fail(self._version, f"it took longer than deadline_seconds={self._deadline:g} at the run's end")
                self._end()
            self._collect()

    def _end(self) -> None:
        """Kill it, and what it has started."""
        if self._process is None:
            return
        self._process.end()
        if self._errors is not None:
            self._errors.close()
        self._process = self._errors = None

    def _skip(self, snapshot: Path) -> None:
        snapshot.unlink(missing_ok=True)
        self.skipped += 1
        if self.skipped == 1:
            self._say(
                f"films take longer than the {self._every_steps:,} steps between them: one is skipped, others are "
                "counted; a larger --video-every helps"
            )

    def _fail(self, version: int, why: str) -> None:
        self.failed += 1
        if self.failed == 1:
            self._say(f"warning: version {version} could not be filmed: {why}; training continues")

    def _check_can_be_told(self) -> None:
        try:
            cloudpickle.dumps((self._experiment, self._interface))
        except Exception as error:
            raise ConfigError(
                f"the environment cannot be handed to the process that films ({type(error).__name__}: {error}); make "
                "what it closes over inside the callable, or leave out video_every"
            ) from error


def video_name(steps: int, seed: int, suffix: str, sampled: bool = False) -> str:
    """By the steps that the policy has learned from, so that names sort as time goes by."""
    return f"step-{steps:010d}-seed-{seed}{'-sampled' * sampled}.{suffix}"


def drop_films_after(folder: RunFolder, steps: int) -> None:
    """Remove the films of policies that have learned from more: the run continues to others."""
    for path in folder.videos_dir.glob("step-*"):
        number = path.name.removeprefix("step-").partition("-")[0]
        if number.isascii() and number.isdigit() and int(number) > steps and path.is_file():
            path.unlink(missing_ok=True)
