"""When a checkpoint is due, and what becomes of one that cannot be written."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from htsrl.checkpoint import background
from htsrl.checkpoint.background import BackgroundCheckpoints, CheckpointTimes, Written
from htsrl.checkpoint.files import Checkpoint


class Desk:
    """Takes what is announced, and gives what is asked for."""

    def __init__(self) -> None:
        self.written: list[Written] = []
        self.taken: list[int] = []
        self.last_time = np.zeros(1)

    def take(self, version: int) -> Checkpoint:
        self.taken.append(version)
        return Checkpoint({"version": version, "mean_return": None}, {"numbers": np.arange(version)})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def checkpoints(folder: Path, desk: Desk, updates: int | None, seconds: float | None) -> BackgroundCheckpoints:
    times = CheckpointTimes(updates, seconds, desk.last_time)
    return BackgroundCheckpoints(folder, times, desk.take, desk.written.append)


def test_by_count_every_one_is_written_and_announced_in_order(tmp_path: Path) -> None:
    desk = Desk()
    background = checkpoints(tmp_path / "checkpoints", desk, updates=3, seconds=None)
    for version in range(10):
        background.at_barrier(version)
    background.finish()
    assert desk.taken == [3, 6, 9], "nothing has happened yet before update 0"
    assert [written.version for written in desk.written] == [3, 6, 9]
    assert all(written.path and Path(written.path).is_dir() for written in desk.written)


def test_by_time_one_is_written_when_so_many_seconds_have_passed(tmp_path: Path, clock: list[float]) -> None:
    desk = Desk()
    clock[0] = 1.0
    background = checkpoints(tmp_path / "checkpoints", desk, updates=None, seconds=10.0)
    for version in range(1, 26):
        clock[0] = float(version)
        background.at_barrier(version)
        background.finish()
    assert desk.taken == [11, 21]


def test_a_learner_that_dies_more_often_than_one_is_due_writes_one_all_the_same(
    tmp_path: Path, clock: list[float]
) -> None:
    desk = Desk()
    for version in range(1, 26):
        clock[0] = float(version)
        started_anew = checkpoints(tmp_path / "checkpoints", desk, updates=None, seconds=10.0)
        started_anew.at_barrier(version)
        started_anew.finish()
    assert desk.taken == [11, 21]


def test_one_that_cannot_be_written_is_announced_with_the_reason_and_tried_again_soon(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path, checkpoint: Checkpoint, on_part: Callable[[], None]) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(background, "prepare_checkpoint", refuse)
    desk = Desk()
    clock[0] = 1.0
    due = checkpoints(tmp_path / "checkpoints", desk, updates=None, seconds=1000.0)
    for version in (1, 11, 21, 42):
        clock[0] = float(version)
        due.at_barrier(version)
        due.finish()
    assert desk.taken == [11, 42], "the first after ten seconds, the next after half a minute, not after a thousand"
    assert [written.path for written in desk.written] == [None, None]
    assert "No space left on device" in desk.written[0].problem


def test_any_other_failure_is_announced_too_and_does_not_end_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path, checkpoint: Checkpoint, on_part: Callable[[], None]) -> Path:
        raise MemoryError("too much")

    monkeypatch.setattr(background, "prepare_checkpoint", fail)
    desk = Desk()
    due = checkpoints(tmp_path / "checkpoints", desk, updates=1, seconds=None)
    for version in (1, 2, 3):
        due.at_barrier(version)
    due.finish()
    assert [written.problem for written in desk.written] == ["MemoryError: too much"] * 3
