"""A run in processes of its own, to be watched from outside."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from htsrl.config import Config
from htsrl.config_file import to_json
from htsrl.errors import HtsrlError
from htsrl.run_folder import RunFolder

PATIENCE_SECONDS = 300.0


@dataclass(frozen=True)
class LiveRun:
    """`htsrl train`, under way."""

    process: subprocess.Popen[bytes]
    folder: RunFolder

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise HtsrlError(f"the run got nowhere for {PATIENCE_SECONDS:g} s, or ended")
            time.sleep(0.005)


@contextmanager
def live_run(config: Config) -> Iterator[LiveRun]:
    """Train in a folder that is gone when the run is, which is killed at the end of the block."""
    with TemporaryDirectory(prefix="htsrl-bench-") as name:
        config_file, run_dir = Path(name) / "config.json", Path(name) / "run"
        config_file.write_text(to_json(config))
        process = subprocess.Popen(
            [sys.executable, "-m", "htsrl", "train", "--config", str(config_file), "--run-dir", str(run_dir)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield LiveRun(process, RunFolder(run_dir))
        finally:
            process.kill()
            process.wait()
