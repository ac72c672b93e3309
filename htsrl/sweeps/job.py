"""One run of several, in a process of its own: a run's bits cannot depend on what ran in its process before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import cloudpickle

from htsrl.config import Config
from htsrl.errors import RunFolderError
from htsrl.observers.dispatch import Watching

CHILD = "htsrl.sweeps.child"
MAX_REPORT_BYTES = 32 * 1024
"""Less than a pipe holds, so that a child never waits for its reader."""
LOG_TAIL_CHARACTERS = 2000
END_SECONDS = 120.0
"""For a run that was asked to end, before it is killed; it resumes from its last checkpoint then."""


@dataclass(frozen=True)
class TrainJob:
    """A run to begin or to continue with."""

    config: Config
    """With the seed and the folder of the run."""
    watching: Callable[[], Watching] = Watching
    """Makes those who watch, in the process of the run."""
    eval_episodes: int = 0
    """0: the final policy is not evaluated."""

    @property
    def run_dir(self) -> Path:
        assert self.config.placement.run_dir is not None
        return self.config.placement.run_dir

    @property
    def log_file(self) -> Path:
        """What the run prints, beside its folder."""
        return self.run_dir.with_name(self.run_dir.name + ".log")


@dataclass(frozen=True)
class JobEnd:
    """How the process of a job ended."""

    error: str = ""
    """The class of htsrl's error; `died` where there was no other word; nothing where all went well."""
    message: str = ""
    score: float | None = None
    """Mean return of the evaluation, if one was asked for."""
    has_begun: bool = True
    """Whether there is a run in the folder."""


class JobProcess:
    """The process of a job, which ends with this one however that ends."""

    def __init__(self, job: TrainJob) -> None:
        self.job = job
        self.was_terminated = False
        job.run_dir.parent.mkdir(0o700, parents=True, exist_ok=True)
        reader, writer = os.pipe()
        self._reader: BinaryIO = os.fdopen(reader, "rb")
        try:
            with open(job.log_file, "ab", opener=_private) as log:
                # A session of its own: Ctrl-C is passed on once, by us, and does not count twice.
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", CHILD, str(writer), str(os.getpid())],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    pass_fds=(writer,),
                    start_new_session=True,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                )
        except OSError as error:
            self._reader.close()
            raise RunFolderError(f"cannot start the run of {job.run_dir}: {error}") from error
        finally:
            os.close(writer)
        assert self._process.stdin is not None
        try:
            with self._process.stdin as pipe:
                pipe.write(cloudpickle.dumps(job))
        except BrokenPipeError:
            pass  # it died at once, and `end` says so

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def terminate(self) -> None:
        """Ask it to end in order: it writes a checkpoint and its results."""
        if not self.was_terminated and not self.has_ended():
            self.was_terminated = True
            self._process.terminate()

    def end(self) -> JobEnd:
        """Wait for its end; what it reported, or how it died."""
        try:
            code = self._process.wait(END_SECONDS if self.was_terminated else None)
        except subprocess.TimeoutExpired:  # an environment that does not return
            self._process.kill()
            code = self._process.wait()
        with self._reader:
            report = self._reader.read(MAX_REPORT_BYTES)
        try:
            return JobEnd(**json.loads(report))
        except (ValueError, TypeError):
            reason = f"signal {-code}" if code < 0 else f"exit code {code}"
            return JobEnd("died", f"its process ended with {reason} and no word;{_tail(self.job.log_file)}")


def report_bytes(end: Mapping[str, Any]) -> bytes:
    """What a child says at its end."""
    return json.dumps({**end, "message": str(end.get("message", ""))[: MAX_REPORT_BYTES // 8]}).encode()


def _tail(log_file: Path) -> str:
    try:
        text = log_file.read_bytes()[-LOG_TAIL_CHARACTERS:].decode(errors="replace").strip()
    except OSError:
        text = ""
    return f" {log_file} ends with:\n{text}" if text else f" {log_file} is empty"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
