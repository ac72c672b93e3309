"""A checkpoint that is being written when a run ends or is interrupted is there afterwards."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from slow_checkpoints import SLOW
from small_run import quiet_placement, small_experiment
from straggler_env import Straggler

from htsrl import Config, train
from htsrl.checkpoint.files import checkpoints_in, newest_first
from htsrl.metrics.report import UpdateReport
from htsrl.runs.recorder import Recorder

EVERY, LAST = 3, 7


def slow_run(tmp_path: Path, backend: str, num_updates: int) -> Config:
    # Steps wait, so that a learner is not at the next checkpoint that is due while one is being written.
    straggler: dict[str, Any] = {"env": Straggler, "env_args": {"slow_env": 0, "seconds": 0.02}}
    experiment = replace(small_experiment(num_updates), imports=("slow_checkpoints",), **straggler)
    placement = quiet_placement(
        backend=backend, run_dir=tmp_path / SLOW, checkpoint_every_updates=EVERY, keep_checkpoints=9
    )
    return Config(experiment, placement)


def versions_kept(tmp_path: Path) -> list[int]:
    return sorted(version for version, _ in newest_first(checkpoints_in(tmp_path / SLOW)))


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_a_run_that_ends_has_every_checkpoint_that_was_due_and_its_last_version(tmp_path: Path, backend: str) -> None:
    train(slow_run(tmp_path, backend, num_updates=LAST))
    assert versions_kept(tmp_path) == [3, 6, 7]


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_a_run_that_is_interrupted_has_every_checkpoint_that_was_due_and_its_last_version(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record_until_interrupted(self: Recorder, report: UpdateReport) -> None:
        record(self, report)
        if report.version == LAST:
            reached.append(self)
            signal.raise_signal(signal.SIGINT)

    reached: list[Recorder] = []
    record = Recorder.record
    monkeypatch.setattr(Recorder, "record", record_until_interrupted)
    monkeypatch.setattr("htsrl.placements.supervisor.GRACE_SECONDS", 60.0)  # of a machine on which all is slow
    with pytest.raises(KeyboardInterrupt):
        train(slow_run(tmp_path, backend, num_updates=40))
    last = reached[0].version  # a learner of its own may have reported more
    assert LAST <= last < 40
    assert versions_kept(tmp_path) == sorted({*range(EVERY, last + 1, EVERY), last})
