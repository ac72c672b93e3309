"""A run in processes of its own, to be watched from outside."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from htsrl.config import Config
from htsrl.config.file import to_json
from htsrl.errors import HtsrlError
from htsrl.metrics.sinks import read_json_lines
from htsrl.runs.folder import RunFolder

PATIENCE_SECONDS = 300.0


class Update(NamedTuple):
    """When it was recorded, and after how many steps."""

    seconds: float
    steps: int


def rate(updates: Sequence[Update]) -> float:
    """Steps per second from the first update to the last."""
    first, last = updates[0], updates[-1]
    return (last.steps - first.steps) / (last.seconds - first.seconds)


@dataclass(frozen=True)
class LiveRun:
    """`htsrl train`, under way."""

    process: subprocess.Popen[bytes]
    folder: RunFolder

    @property
    def pid(self) -> int:
        return self.process.pid

    def updates(self) -> list[Update]:
        """All so far, if `log_every_steps` is 1."""
        path = self.folder.metrics_file
        lines = read_json_lines(path) if path.exists() else []
        return [Update(line["time/time_elapsed"] or 0.0, int(line["step"] or 0)) for line in lines]

    def wait_until(self, condition: Callable[[], bool], look_seconds: float = 0.005) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise HtsrlError(f"the run got nowhere for {PATIENCE_SECONDS:g} s, or ended")
            time.sleep(look_seconds)


@contextmanager
def live_run(config: Config) -> Iterator[LiveRun]:
    """Train in a folder that is gone when the run is, which is killed at the end of the block."""
    with TemporaryDirectory(prefix="htsrl-bench-") as name:
        config_file, run_dir = Path(name) / "config.json", Path(name) / "run"
        config_file.write_text(to_json(config))
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "htsrl",
                "train",
                "--trust",
                "--config",
                str(config_file),
                "--run-dir",
                str(run_dir),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield LiveRun(process, RunFolder(run_dir))
        finally:
            process.kill()
            process.wait()
