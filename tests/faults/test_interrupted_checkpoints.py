"""A writer that is killed, or has no room, leaves the checkpoint before it or its own, whole."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from live_run import PACKAGE_ROOT

from htsrl.checkpoint.files import Checkpoint, newest_valid, prune
from htsrl.processes.kill_points import KILL_AT

PREAMBLE = """
import sys, os
from pathlib import Path
import numpy as np
from htsrl.checkpoint.files import *

folder = Path(sys.argv[1])

def write(version, edition="new", num_bytes=1000):
    document = {"version": version, "edition": edition}
    arrays = {"weights": np.full(num_bytes, version, np.uint8)}
    return commit_checkpoint(prepare_checkpoint(folder, Checkpoint(document, arrays)))
"""
SECONDS = 60.0


def python(script: str, folder: Path) -> list[str]:
    return [sys.executable, "-c", PREAMBLE + script, str(folder)]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(PACKAGE_ROOT), **more}


def run_until_killed_at(point: str, script: str, folder: Path) -> None:
    ended = subprocess.run(python(script, folder), env=environment(**{KILL_AT: point}), timeout=SECONDS, check=False)
    assert ended.returncode == -signal.SIGKILL, f"never came to {point!r}"


def newest(folder: Path) -> tuple[Path, Checkpoint]:
    """The newest one, which must be whole, for kills damage nothing."""

    def fail(warning: str) -> None:
        raise AssertionError(warning)

    found = newest_valid(folder, fail)
    assert found is not None
    assert set(found[1].arrays["weights"]) == {found[1].document["version"]}
    return found


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


@pytest.mark.parametrize(
    ("point", "version"), [("checkpoint written:2", 1), ("checkpoint synced:2", 1), ("checkpoint renamed:2", 2)]
)
def test_a_kill_leaves_the_checkpoint_before_or_the_new_one(tmp_path: Path, point: str, version: int) -> None:
    run_until_killed_at(point, "write(1); write(2)", tmp_path)
    path, checkpoint = newest(tmp_path)
    assert checkpoint.document["version"] == version
    prune(path, keep_last=1)
    assert names(tmp_path) == [f"{version:09d}"]


@pytest.mark.parametrize(
    ("point", "edition"),
    [
        ("checkpoint written:2", "old"),
        ("checkpoint synced:2", "old"),
        ("checkpoint set aside:1", "old"),
        ("checkpoint renamed:2", "new"),
        ("checkpoint dropped:1", "new"),
    ],
)
def test_a_kill_while_the_only_checkpoint_is_replaced_leaves_one(tmp_path: Path, point: str, edition: str) -> None:
    run_until_killed_at(point, "write(1, 'old'); write(1, 'new')", tmp_path)
    path, checkpoint = newest(tmp_path)
    assert checkpoint.document["edition"] == edition
    prune(path, keep_last=1)
    assert newest(tmp_path)[1].document["edition"] == edition
    assert names(tmp_path) == [".old-000000001" if point == "checkpoint set aside:1" else "000000001"]


def test_a_kill_while_pruning_leaves_whole_checkpoints_and_the_next_pruning_does_the_rest(tmp_path: Path) -> None:
    run_until_killed_at("checkpoint dropped:2", "prune([write(v) for v in (1, 2, 3, 4)][-1], 1)", tmp_path)
    path, checkpoint = newest(tmp_path)
    assert checkpoint.document["version"] == 4
    # Newest first: of 3, 2 and 1 the first is gone, the second is on its way, the third is as it was.
    assert [name for name in names(tmp_path) if not name.startswith(".tmp-000000002-")] == ["000000001", "000000004"]
    prune(path, keep_last=1)
    assert names(tmp_path) == ["000000004"]


ENDLESS = """
found = newest_valid(folder, print)
version = found[1].document["version"] if found else 0
while True:
    version += 1
    write(version, num_bytes=300_000)
    committed = write(version, num_bytes=200_000)
    print(version, flush=True)
    prune(committed, 2)
"""


def test_kills_at_any_time_lose_nothing_that_was_committed(tmp_path: Path) -> None:
    seed = time.time_ns()
    delays = random.Random(seed)
    for _ in range(4):
        with subprocess.Popen(
            python(ENDLESS, tmp_path), env=environment(), stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            announced = [writer.stdout.readline()]
            time.sleep(delays.uniform(0.0, 0.1))
            writer.kill()
            announced += writer.stdout.readlines()
        last = int([line for line in announced if line.endswith("\n")][-1])
        path, checkpoint = newest(tmp_path)
        assert checkpoint.document["version"] in (last, last + 1), f"delays from seed {seed}"
    prune(path, keep_last=2)
    assert len(names(tmp_path)) == 2


FULL_DISK = """
import errno, json
write(1, num_bytes=200_000)
seen = []
for num_bytes in (2_000_000, 1_000_000, 843_500):  # with the last there is room for all but the manifest
    try:
        write(2, num_bytes=num_bytes)
    except OSError as error:
        seen.append([errno.errorcode[error.errno], sorted(os.listdir(folder))])
read = read_checkpoint(folder / "000000001")
write(3, num_bytes=200_000)
print(json.dumps({"seen": seen, "sum": int(read.arrays["weights"].sum()), "names": sorted(os.listdir(folder))}))
"""


def on_small_disk(folder: Path, script: str) -> Any:
    """What a script prints whose folder is a tmpfs of 1 MiB that nobody else sees; skips where none can be mounted."""
    folder.mkdir()
    mount = ["unshare", "--map-root-user", "--mount", "sh", "-ec"]
    mount += ['mount -t tmpfs -o size=1m tmpfs "$0"; exec "$@"', str(folder)]
    if shutil.which("unshare") is None or subprocess.run([*mount, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user can mount no file system of its own (unshare --map-root-user --mount)")
    ended = subprocess.run(
        [*mount, *python(script, folder)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_a_full_disk_is_an_error_that_leaves_the_old_checkpoint_and_no_rubbish(tmp_path: Path) -> None:
    result = on_small_disk(tmp_path / "checkpoints", FULL_DISK)
    assert result["seen"] == [["ENOSPC", ["000000001"]]] * 3
    assert result["sum"] == 200_000
    assert result["names"] == ["000000001", "000000003"]
