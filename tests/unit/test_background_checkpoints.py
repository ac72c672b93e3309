"""When a checkpoint is due, and what becomes of one that cannot be written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from htsrl.checkpoint import background
from htsrl.checkpoint.background import BackgroundCheckpoints, Written
from htsrl.checkpoint.files import Checkpoint


class Desk:
    """Takes what is announced, and gives what is asked for."""

    def __init__(self) -> None:
        self.written: list[Written] = []
        self.taken: list[int] = []

    def take(self, version: int) -> Checkpoint:
        self.taken.append(version)
        return Checkpoint({"version": version, "mean_return": None}, {"numbers": np.arange(version)})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(background.time, "monotonic", lambda: now[0])
    return now


def checkpoints(folder: Path, desk: Desk, updates: int | None, seconds: float | None) -> BackgroundCheckpoints:
    return BackgroundCheckpoints(folder, updates, seconds, desk.take, desk.written.append)


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
    background = checkpoints(tmp_path / "checkpoints", desk, updates=None, seconds=10.0)
    for version in range(25):
        clock[0] = float(version)
        background.at_barrier(version)
        background.finish()
    assert desk.taken == [10, 20]


def test_one_that_cannot_be_written_is_announced_with_the_reason_and_tried_again_soon(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path, checkpoint: Checkpoint) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(background, "prepare_checkpoint", refuse)
    desk = Desk()
    due = checkpoints(tmp_path / "checkpoints", desk, updates=None, seconds=1000.0)
    for version in (0, 1000, 1010, 1031):
        clock[0] = float(version)
        due.at_barrier(version)
        due.finish()
    assert desk.taken == [1000, 1031], "after half a minute, not only after another thousand seconds"
    assert [written.path for written in desk.written] == [None, None]
    assert "No space left on device" in desk.written[0].problem
