"""An asynchronous run from which processes are killed makes all its updates, and what it then saw can be repeated."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from helpers import Outcome, assert_same_run
from live_run import LiveRun, patience
from small_run import quiet_placement, resume_inline, small_experiment, small_flags
from test_kill_points import PROCESSES, Kill, run_until_killed

from htsrl import Config, RunFolderError, resume, train
from htsrl.digest import read_links
from htsrl.processes.kill_points import KILL_AT, KILL_ONCE
from htsrl.runs.folder import RunFolder

NUM_UPDATES = 30
QUICK = [
    Kill("executor 0", "before a rollout counts", 30, "async"),
    Kill("actor 0", "inside an answer", 40, "async"),
    Kill("learner", "before a publish", 10, "async"),
]
SLOW = [
    Kill("executor 0", "inside a storage write", 100, "async"),
    Kill("executor 0", "inside a capsule", 31, "async"),
    Kill("executor 0", "after a rollout counts", 32, "async"),
    Kill("executor 0", "after a request", 150, "async"),
    Kill("actor 0", "before an answer", 50, "async"),
    Kill("actor 0", "after an answer", 60, "async"),
    Kill("learner", "optimizer step", 7, "async"),
    Kill("learner", "before a commit", 8, "async"),
    Kill("learner", "after a publish", 11, "async"),
    Kill("learner", "checkpoint written", 2, "async"),
]


def replayed(run_dir: Path, to: Path) -> Outcome:
    experiment = RunFolder.existing(run_dir).load_config().experiment
    train(Config(replace(experiment, replay_schedule=run_dir), quiet_placement(backend="inline", run_dir=to)))
    return Outcome.read(to)


@pytest.mark.parametrize("kill", [*QUICK, *(pytest.param(kill, marks=pytest.mark.slow) for kill in SLOW)], ids=str)
def test_a_worker_killed_at_any_point_leaves_a_run_that_goes_on_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], kill: Kill
) -> None:
    monkeypatch.setenv(KILL_AT, f"{kill.point}:{kill.times}")
    monkeypatch.setenv(KILL_ONCE, str(tmp_path / "killed"))
    worker_layout = quiet_placement(
        num_executors=1,
        num_actors=1,
        run_dir=tmp_path / "run",
        checkpoint_every_updates=3,
        deadline_seconds=patience(30.0),
        verify_storages=True,
    )
    result = train(Config(small_experiment(NUM_UPDATES, "async"), worker_layout))
    monkeypatch.undo()
    assert (tmp_path / "killed").exists(), f"nobody came to {kill.point!r} {kill.times} times"
    assert result.restarts == 1
    assert re.search(rf"{kill.role} \(pid \d+\) was killed by SIGKILL .*the queue \(update", capfd.readouterr().err)
    recorded = Outcome.read(tmp_path / "run")
    assert len(recorded.links) == NUM_UPDATES
    assert_same_run(replayed(tmp_path / "run", tmp_path / "again"), recorded)


def test_a_run_that_goes_on_from_a_checkpoint_can_be_repeated_from_its_beginning(tmp_path: Path) -> None:
    """The cut was taken while executors continued; whatever the run saw after it was lost with the main process."""
    kill = {KILL_AT: "checkpoint renamed:4"}
    flags = (*small_flags(NUM_UPDATES), "--schedule", "async", *PROCESSES)
    run_until_killed(LiveRun(tmp_path, *flags, variables=kill))
    run_dir = tmp_path / "run"
    assert 0 < len(read_links(run_dir)) < NUM_UPDATES
    resume_inline(run_dir)
    resumed = Outcome.read(run_dir)
    assert len(resumed.links) == NUM_UPDATES
    assert_same_run(replayed(run_dir, tmp_path / "again"), resumed)


def test_a_run_whose_schedule_was_lost_is_not_gone_on_with(tmp_path: Path) -> None:
    """It could never be repeated, and would not say so until somebody tries."""
    worker_layout = quiet_placement(backend="inline", run_dir=tmp_path / "run")
    train(Config(small_experiment(4, "async"), worker_layout))
    (tmp_path / "run" / "schedule.jsonl").unlink()
    with pytest.raises(RunFolderError, match=r"schedule\.jsonl lacks barriers before version 4"):
        resume(tmp_path / "run", total_steps=10_000, placement=quiet_placement(backend="inline"))
