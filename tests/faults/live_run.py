"""A run of htsrl in processes of its own, to be watched, interrupted and killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

import htsrl
from htsrl_bench.process_tree import workers_named

PACKAGE_ROOT = Path(htsrl.__file__).parents[1]
START_SECONDS = 60.0
AT_ONCE_SECONDS = 30.0
"""By then everything has ended that ends at once, on the most crowded machine. What ends only when an environment that
hangs lets it is later: see HANG_SECONDS of the faulty environments."""

# A2C, whose updates take a millisecond; metrics of every update; nothing that takes time to start and is not asked for.
COMMON = ("--algo", "a2c", "--log-every-steps", "1", "--no-tensorboard", "--progress", "off")


SHARED_MEMORY_FOLDER = Path("/dev/shm")


def shared_memory() -> set[str]:
    """What lies in the shared memory of the system, but for the semaphores of Python's multiprocessing: htsrl has none,
    and whatever else runs on this machine may make some at any time."""
    return {name for name in os.listdir(SHARED_MEMORY_FOLDER) if not name.startswith("sem.mp-")}


def patience(seconds: float) -> float:
    """`seconds` on a machine with a core for everyone who wants one; on a crowded one, as much longer as the queue."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


class LiveRun:
    """`htsrl train ...` as the leader of a process group, as a shell would start it."""

    def __init__(self, folder: Path, *arguments: str, variables: Mapping[str, str] | None = None) -> None:
        self._start(folder, ["train", *arguments, *COMMON, "--run-dir", "run"], variables or {})

    @classmethod
    def resumed(cls, folder: Path, *arguments: str, variables: Mapping[str, str] | None = None) -> LiveRun:
        """`htsrl resume` of the run that was trained in this folder."""
        run = cls.__new__(cls)
        run._start(folder, ["resume", "run", *arguments], variables or {})
        return run

    def _start(self, folder: Path, arguments: Sequence[str], variables: Mapping[str, str]) -> None:
        self.folder = folder
        self.run_dir = folder / "run"
        self._stdout, self._stderr = folder / "stdout", folder / "stderr"
        path = os.pathsep.join([str(PACKAGE_ROOT), str(Path(__file__).parent)])
        with self._stdout.open("w") as stdout, self._stderr.open("w") as stderr:
            self._main = subprocess.Popen(
                [sys.executable, "-m", "htsrl", *arguments],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **variables},
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        self.main = psutil.Process(self._main.pid)
        self.workers: list[psutil.Process] = []

    @property
    def stdout(self) -> str:
        return self._stdout.read_text()

    @property
    def stderr(self) -> str:
        return self._stderr.read_text()

    @property
    def exit_code(self) -> int | None:
        return self._main.poll()

    def wait_until(self, condition: Callable[[], bool], seconds: float = START_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert self._main.poll() is None, f"the run ended by itself:\n{self.stderr}"
            assert time.monotonic() < deadline, f"waited in vain for {seconds} s:\n{self.stderr}"
            time.sleep(0.02)

    def wait_until_it_learns(self, num_lines: int = 2) -> None:
        """Wait for so many lines of metrics; from then on `workers` holds the worker processes."""
        self.wait_until(lambda: self.num_metrics() >= num_lines)
        self.workers = self.find_workers()

    def num_metrics(self) -> int:
        file = self.run_dir / "metrics.jsonl"
        return file.read_text().count("\n") if file.exists() else 0

    def find_workers(self) -> list[psutil.Process]:
        """Neither the spare nor a fork server is one."""
        return [process for process in self.main.children() if is_worker(process)]

    def worker(self, name: str) -> psutil.Process:
        """The one of this name, once it learns."""
        (pid,) = workers_named(name, self.main.pid)
        return psutil.Process(pid)

    def press_ctrl_c(self) -> None:
        """The terminal's signal goes to the whole process group."""
        os.killpg(self._main.pid, signal.SIGINT)

    def wait_for_end(self, seconds: float = AT_ONCE_SECONDS) -> None:
        """Wait until the main process has ended, or complain that it has not."""
        self._main.wait(seconds)

    def result(self) -> Any:
        return json.loads((self.run_dir / "result.json").read_text())

    def clean_up(self) -> None:
        for process in [*self.workers, *([] if self._main.poll() is not None else self.main.children()), self.main]:
            if is_alive(process):
                process.kill()
        self._main.wait()


def is_worker(process: psutil.Process) -> bool:
    try:
        return process.name() not in ("new spare", "spare", "fork server")
    except psutil.Error:  # it died just now
        return False


def is_alive(process: psutil.Process) -> bool:
    """Whether the process still does anything; one that is dead but not yet fetched by its parent does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def survivors(processes: Sequence[psutil.Process], seconds: float = AT_ONCE_SECONDS) -> list[psutil.Process]:
    """Those that are still alive after so long."""
    deadline = time.monotonic() + seconds
    while (alive := [process for process in processes if is_alive(process)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return alive
