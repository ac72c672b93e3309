"""A folder belongs to one run at a time, and is free the moment that run is gone."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import htsrl
from htsrl.errors import RunFolderError
from htsrl.runs.lock import RunLock

PACKAGE_ROOT = Path(htsrl.__file__).parents[1]
HOLD = """
import subprocess, sys, time
from pathlib import Path
from htsrl.runs.lock import RunLock

lock = RunLock.acquire(Path(sys.argv[1]))
worker = subprocess.Popen(["sleep", "60"], close_fds=False, stdout=subprocess.DEVNULL)
print(worker.pid, flush=True)
time.sleep(60)
"""


@contextmanager
def holder(run_dir: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that holds the lock, and the pid of a worker that it has started."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run_dir)], stdout=subprocess.PIPE, text=True, cwd=PACKAGE_ROOT
    )
    assert process.stdout is not None
    with process:
        worker_pid = int(process.stdout.readline())
        try:
            yield process, worker_pid
        finally:
            process.kill()
            os.kill(worker_pid, signal.SIGKILL)


def test_a_second_process_is_refused_and_told_who_holds_the_folder(tmp_path: Path) -> None:
    with holder(tmp_path) as (process, _), pytest.raises(RunFolderError) as refusal:
        RunLock.acquire(tmp_path)
    told = rf"{re.escape(str(tmp_path))} is in use by process {process.pid} on {socket.gethostname()} since .+; wait.+"
    assert re.fullmatch(told, str(refusal.value))


def test_a_killed_holder_leaves_the_folder_free_even_if_its_worker_lives_on(tmp_path: Path) -> None:
    with holder(tmp_path) as (process, worker_pid):
        process.kill()
        process.wait()
        os.kill(worker_pid, 0)  # it is alive
        with RunLock.acquire(tmp_path):
            assert (tmp_path / ".lock").read_text().startswith(f"process {os.getpid()} on ")


def test_a_second_run_in_the_same_process_is_refused(tmp_path: Path) -> None:
    with (
        RunLock.acquire(tmp_path),
        pytest.raises(RunFolderError, match=f"in use by process {os.getpid()} "),
    ):
        RunLock.acquire(tmp_path)


def test_a_refused_run_takes_nothing_from_the_holder(tmp_path: Path) -> None:
    with RunLock.acquire(tmp_path):
        for _ in range(3):
            with pytest.raises(RunFolderError, match=f"in use by process {os.getpid()} "):
                RunLock.acquire(tmp_path)


def test_a_released_folder_can_be_locked_again(tmp_path: Path) -> None:
    lock = RunLock.acquire(tmp_path)
    lock.release()
    lock.release()
    with RunLock.acquire(tmp_path):
        pass
    with RunLock.acquire(tmp_path):
        pass


def test_a_file_left_behind_keeps_nobody_out_and_is_signed_anew(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("process 1 on a machine with a rather long name since the beginning of time\n" * 9)
    with RunLock.acquire(tmp_path):
        text = (tmp_path / ".lock").read_text()
    assert text.startswith(f"process {os.getpid()} on ")
    assert text.count("\n") == 1


def test_a_holder_that_could_not_sign_keeps_others_out_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full_disk)
        lock = RunLock.acquire(tmp_path)
    with lock, pytest.raises(RunFolderError, match="in use by another process;"):
        RunLock.acquire(tmp_path)


def test_only_its_user_can_read_the_file(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        RunLock.acquire(tmp_path).release()
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / ".lock").stat().st_mode) == 0o600


def test_a_folder_that_cannot_be_locked_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"cannot lock .+/nowhere: No such file or directory"):
        RunLock.acquire(tmp_path / "nowhere")
