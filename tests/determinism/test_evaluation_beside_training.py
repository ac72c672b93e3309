"""Evaluation beside training: deterministic in itself, its process killed or not, and no part of the run's bits."""

from __future__ import annotations

import json
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import pytest
from helpers import Outcome, assert_same_run
from small_experiments import oracle, small_experiment

import htsrl
from htsrl import Config, ConfigError, Placement, RunResult, evaluate, load_policy, resume, train
from htsrl.checkpoint.snapshots import is_due, snapshot_file, write_snapshot
from htsrl.digest import read_links
from htsrl.metrics.evaluation import Evaluation
from htsrl.observers.observer import ObservedRun, Observer, UpdateEvent
from htsrl.processes.kill_points import KILL_AT, KILL_ONCE
from htsrl.runs import evaluations, evaluator, evaluator_process
from htsrl.runs.evaluations import EvaluationRecord, best_evaluated, drop_evaluations_after, read_evaluations
from htsrl.runs.evaluator import EvaluationJob, Evaluator
from htsrl.runs.folder import RunFolder

EXPERIMENT = small_experiment("cartpole_a2c")
EVERY = 300
DUE = [version for version in range(1, 26) if is_due(version, EXPERIMENT.batch_steps, EVERY)]
"""Of the run's 25 versions; its last is evaluated in any case."""
TIMES = ("ended_at", "seconds", "cpu_seconds")


class Notes(Observer):
    """Hears of evaluations, and may stop the run."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.evaluations: list[Evaluation] = []
        self._stop_at = stop_at

    def on_start(self, run: ObservedRun) -> None:
        self.run = run

    def on_update(self, event: UpdateEvent) -> None:
        if event.version == self._stop_at:
            self.run.stop("seen enough")

    def on_evaluation(self, evaluation: Evaluation) -> None:
        self.evaluations.append(evaluation)


def evaluated_run(run_dir: Path, notes: Notes | None = None, **placement: Any) -> RunResult:
    settings: dict[str, Any] = {"backend": "inline", "tensorboard": False, "progress": "off", "eval_every": EVERY}
    settings |= {"eval_episodes": 3, "run_dir": run_dir, **placement}
    return train(Config(EXPERIMENT, Placement(**settings)), observers=[notes] if notes else [])


def lines_of(run_dir: Path) -> list[dict[str, Any]]:
    """Without what the clock says."""
    lines = [json.loads(line) for line in (run_dir / "evaluations.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]


@pytest.fixture
def every_snapshot_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run waits, so that no version is skipped and tests know what comes when."""
    offer = Evaluator.offer

    def offer_and_wait(self: Evaluator, job: EvaluationJob) -> EvaluationJob | None:
        skipped = offer(self, job)
        while not self.is_idle:
            self.wait()
        return skipped

    monkeypatch.setattr(Evaluator, "offer", offer_and_wait)


class InThisProcess:
    """Stands in for the evaluator's process where it does not matter that it is one: it takes seconds to start."""

    def __init__(self, plan: bytes) -> None:
        self._plan = cloudpickle.loads(plan)

    def evaluate(self, snapshot: Path, deadline_seconds: float, on_progress: Any) -> Any:
        with open(os.devnull, "wb") as nowhere:
            return json.loads(json.dumps(evaluator_process._answer(self._plan, snapshot, nowhere.fileno())))

    def kill(self) -> None:
        """There is no process."""

    end = kill


@pytest.fixture
def no_process(monkeypatch: pytest.MonkeyPatch, every_snapshot_is_evaluated: None) -> None:
    monkeypatch.setattr(evaluator, "_Child", InThisProcess)


def test_evaluations_leave_the_run_alone_and_are_those_that_are_made_later(tmp_path: Path) -> None:
    notes = Notes()
    result = evaluated_run(tmp_path / "run", notes)
    assert_same_run(Outcome.read(tmp_path / "run"), oracle("cartpole_a2c"))
    lines = lines_of(tmp_path / "run")
    versions = [line["version"] for line in lines]
    assert versions == sorted(set(versions))
    assert set(versions) <= {*DUE, 25}
    assert result.evaluations == len(lines)
    assert result.evaluations + result.evaluations_skipped == len({*DUE, 25})
    assert result.evaluations_failed == 0
    assert lines[-1]["version"] == result.updates == 25
    assert [(seen.version, seen.steps) for seen in notes.evaluations] == [(x["version"], x["step"]) for x in lines]
    later = evaluate(tmp_path / "run", 3)
    assert tuple(lines[-1]["returns"]) == later.returns == notes.evaluations[-1].returns
    assert lines[-1]["eval/mean_reward"] == later.mean_return == result.eval_return
    assert not (tmp_path / "run" / "snapshots").exists()


def test_a_killed_evaluator_is_started_again_and_finds_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every_snapshot_is_evaluated: None
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(evaluator, "_Child", InThisProcess)
        evaluated_run(tmp_path / "undisturbed")
    monkeypatch.setenv(KILL_AT, "inside an evaluation:5")
    monkeypatch.setenv(KILL_ONCE, str(tmp_path / "killed"))
    result = evaluated_run(tmp_path / "run")
    assert (tmp_path / "killed" / "inside an evaluation").exists()
    assert_same_run(Outcome.read(tmp_path / "run"), oracle("cartpole_a2c"))
    assert lines_of(tmp_path / "run") == lines_of(tmp_path / "undisturbed")
    assert [line["version"] for line in lines_of(tmp_path / "run")] == [*DUE, 25]
    assert (result.evaluations_failed, result.evaluations_skipped) == (0, 0)


def test_an_evaluator_that_always_dies_is_counted_and_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(KILL_AT, "inside an evaluation:1")
    result = evaluated_run(tmp_path / "run", eval_every=10**9)
    assert_same_run(Outcome.read(tmp_path / "run"), oracle("cartpole_a2c"))
    assert (result.evaluations, result.evaluations_failed, result.interrupted) == (0, 1, False)
    said = capfd.readouterr().err
    assert said.count("could not be evaluated") == 1
    assert "was killed by SIGKILL" in said


def test_a_goal_that_is_held_ends_the_run_and_changes_only_its_length(tmp_path: Path, no_process: None) -> None:
    result = evaluated_run(tmp_path / "run", stop_at_eval_return=1.0, eval_goal_held=2)
    second = DUE[1]
    assert (result.updates, result.evaluations) == (second + 1, 3)  # the last version is evaluated too
    assert (result.eval_goal_reached, result.interrupted) == (True, False)
    assert result.stop_reason is not None
    assert "the last 2 evaluations reached stop_at_eval_return=1" in result.stop_reason
    assert read_links(tmp_path / "run") == oracle("cartpole_a2c").links[: second + 1]
    with pytest.raises(ConfigError, match="the run has ended: its last evaluations reached stop_at_eval_return=1"):
        resume(tmp_path / "run")
    placement = RunFolder.existing(tmp_path / "run").load_config().placement
    resume(tmp_path / "run", placement=replace(placement, stop_at_eval_return=None))
    assert Outcome.read(tmp_path / "run").digest == oracle("cartpole_a2c").digest


def test_a_resumed_run_repeats_no_evaluation(tmp_path: Path, no_process: None) -> None:
    evaluated_run(tmp_path / "whole")
    evaluated_run(tmp_path / "run", Notes(stop_at=12))
    before = lines_of(tmp_path / "run")
    resume(tmp_path / "run")
    lines = lines_of(tmp_path / "run")
    assert lines[: len(before)] == before
    assert [line for line in lines if line["version"] in {*DUE, 25}] == lines_of(tmp_path / "whole")
    assert len({line["version"] for line in lines}) == len(lines)
    assert_same_run(Outcome.read(tmp_path / "run"), oracle("cartpole_a2c"))


def test_a_longer_run_drops_what_was_found_of_versions_that_it_does_not_come_to(
    tmp_path: Path, no_process: None
) -> None:
    """Learning rates are annealed over the whole run, so behind the checkpoint its versions are others."""
    run_dir = evaluated_run(tmp_path / "run", checkpoint_every_updates=10).run_dir
    before = lines_of(run_dir)
    shutil.rmtree(run_dir / "checkpoints" / "000000025")  # as if it had been killed after its last update
    (run_dir / "result.json").unlink()
    resume(run_dir, total_steps=2 * EXPERIMENT.total_steps)
    evaluated_run(tmp_path / "undisturbed", Notes(stop_at=20))
    resume(tmp_path / "undisturbed", total_steps=2 * EXPERIMENT.total_steps)
    assert read_links(run_dir) == read_links(tmp_path / "undisturbed")
    lines = {line["version"]: line for line in lines_of(run_dir)}
    assert [lines[line["version"]] for line in before if line["version"] <= 20] == [
        x for x in before if x["version"] <= 20
    ]
    assert 25 not in lines, "evaluated when the run was to end there"
    later = {line["version"]: line for line in lines_of(tmp_path / "undisturbed") if line["version"] > 20}
    assert {version: line for version, line in lines.items() if version > 20} == later


def test_a_goal_without_evaluations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="stop_at_eval_return=5 needs evaluations"):
        evaluated_run(tmp_path / "run", eval_every=None, stop_at_eval_return=5.0)


def test_an_environment_that_cannot_be_handed_over_is_refused_before_anything_starts(tmp_path: Path) -> None:
    lock = threading.Lock()

    def make() -> Any:
        with lock:
            return gymnasium.make("CartPole-v1")

    placement = Placement("inline", eval_every=EVERY, tensorboard=False, progress="off", run_dir=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"cannot be handed to worker processes .* or leave out eval_every"):
        train(Config(replace(EXPERIMENT, env=make, env_args={}), placement))
    assert not (tmp_path / "run").exists()


def test_of_two_versions_that_wait_the_newer_is_evaluated(tmp_path: Path) -> None:
    evaluator = Evaluator(None, 1.0)  # type: ignore[arg-type]
    evaluator._thread = threading.current_thread()  # nobody takes a job
    jobs = [EvaluationJob(version, version, tmp_path) for version in (1, 2, 3)]
    assert [evaluator.offer(job) for job in jobs] == [None, jobs[0], jobs[1]]


# What is kept


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("trained") / "run"
    evaluated_run(run_dir, eval_every=None, eval_episodes=0)
    return run_dir


def record_of(trained: Path, tmp_path: Path, returns: dict[int, float]) -> EvaluationRecord:
    """A record of evaluations of versions with these returns, in a copy of a run."""
    if not (tmp_path / "run").exists():
        shutil.copytree(trained, tmp_path / "run")
    record = EvaluationRecord(RunFolder.existing(tmp_path / "run"), print)
    for version, mean_return in returns.items():
        add(record, tmp_path, version, mean_return)
    return record


def add(record: EvaluationRecord, tmp_path: Path, version: int, mean_return: float) -> None:
    snapshot = snapshot_file(tmp_path, version)
    write_snapshot(snapshot, load_policy(tmp_path / "run").policy, version)
    record.add(Evaluation((mean_return,), (1,), version, snapshot, steps=40 * version), 0, 0.5, 0.5)


def test_the_best_policy_is_kept_and_chosen(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = record_of(trained, tmp_path, {1: 5.0, 2: 9.0, 3: float("nan"), 4: 9.0, 5: 7.0})
    folder = RunFolder.existing(tmp_path / "run")
    assert best_evaluated(folder) == (record.best_version, record.best_return) == (4, 9.0)  # the later of two
    assert load_policy(folder.path, checkpoint="best").version == 4
    assert evaluate(folder.path, 1, checkpoint="best").source == folder.best_policy_file
    from htsrl.cli.folder import VersionFlags

    VersionFlags(best=True).explain_best(folder.path, "best")
    assert capsys.readouterr().out == "best by evaluation beside training, return 9.00\n"
    assert read_evaluations(folder.evaluations_file)[2].mean_return is None


def test_without_evaluations_the_best_is_that_of_training(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from htsrl.cli.folder import VersionFlags

    assert load_policy(trained, checkpoint="best").source.parent.name == "checkpoints"
    VersionFlags(best=True).explain_best(trained, "best")
    assert "by the return of training episodes" in capsys.readouterr().out


def test_a_kill_before_the_line_leaves_a_best_policy_that_knows_its_return(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(Exception):
        pass

    def die(point: str) -> None:
        assert point == "before an evaluation's line"
        raise Killed

    record = record_of(trained, tmp_path, {1: 5.0})
    monkeypatch.setattr(evaluations, "kill_point", die)
    with pytest.raises(Killed):
        add(record, tmp_path, 2, 9.0)
    after = EvaluationRecord(RunFolder.existing(tmp_path / "run"), print)
    assert (after.best_version, after.best_return, after.versions) == (2, 9.0, {1})


def test_a_full_disk_takes_the_best_policy_and_not_the_run(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(self: RunFolder, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    record = record_of(trained, tmp_path, {1: 5.0})
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "keep_best_policy", refuse)
        add(record, tmp_path, 2, 9.0)
    assert (record.best_version, record.versions) == (1, {1, 2})
    assert "training continues" in capsys.readouterr().out


def test_other_bits_take_the_evaluations_of_later_versions_with_them(trained: Path, tmp_path: Path) -> None:
    record_of(trained, tmp_path, {1: 5.0, 3: 9.0}).close()
    folder = RunFolder.existing(tmp_path / "run")
    drop_evaluations_after(folder, 3, print)
    assert best_evaluated(folder) == (3, 9.0)
    drop_evaluations_after(folder, 2, print)
    assert [past.version for past in read_evaluations(folder.evaluations_file)] == [1]
    assert best_evaluated(folder) is None


def test_a_damaged_line_is_named(trained: Path, tmp_path: Path) -> None:
    record_of(trained, tmp_path, {1: 5.0}).close()
    path = tmp_path / "run" / "evaluations.jsonl"
    path.write_text(path.read_text() + '{"version": "x"}\n')
    with pytest.raises(htsrl.RunFolderError, match=r"evaluations.jsonl, line 2"):
        read_evaluations(path)
