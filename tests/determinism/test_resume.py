"""A run that is resumed from any of its barriers ends as if it had never stopped, and refuses to be another."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
from helpers import Outcome, assert_same_run, run

from htsrl import A2C, PPO, Config, ConfigError, Experiment, Network, Placement, RunFolderError, resume, train
from htsrl.metrics.report import UpdateReport
from htsrl.runs.evaluations import read_evaluations
from htsrl.runs.folder import RunFolder
from htsrl.runs.lock import RunLock
from htsrl.runs.recorder import Recorder
from htsrl.runs.saved_policy import saved_policy

NUM_BARRIERS = 50
SAMPLED_BARRIERS = (2, 49)
NUM_ENVS = 4


def steps(experiment: Experiment, num_barriers: int) -> int:
    return num_barriers * experiment.batch_steps


def of_length(experiment: Experiment, num_barriers: int = NUM_BARRIERS) -> Experiment:
    return replace(experiment, total_steps=steps(experiment, num_barriers))


# The limit cuts some episodes and lets others fall over.
CARTPOLE = of_length(Experiment("CartPole-v1", {"max_episode_steps": 20}, algorithm=A2C(), num_envs=NUM_ENVS))
NORMALIZED = of_length(
    Experiment(
        "Pendulum-v1",
        {"max_episode_steps": 21},
        algorithm=PPO(epochs=2, num_minibatches=2, normalize_rewards=True),
        network=Network(normalize_observations=True),
        num_envs=NUM_ENVS,
        sync_interval=8,
    )
)
DELAYED = replace(
    NORMALIZED, algorithm=PPO(epochs=2, num_minibatches=2, normalize_rewards=True, lag_correction="delayed_update")
)
# A linear policy, so that fifty checkpoints are no gigabyte.
PONG = of_length(
    Experiment(
        "ALE/Pong-v5", algorithm=A2C(), network=Network(encoder="mlp", hidden_sizes=()), num_envs=2, sync_interval=4
    )
)
EXPERIMENTS = {"cartpole": CARTPOLE, "normalized": NORMALIZED, "delayed": DELAYED, "pong": PONG}
NEEDS_ATARI = pytest.mark.skipif(importlib.util.find_spec("ale_py") is None, reason="needs ale-py")
NAMES = ["cartpole", "normalized", "delayed", pytest.param("pong", marks=NEEDS_ATARI)]


def quiet(run_dir: Path | None = None, **settings: Any) -> Placement:
    quietly: dict[str, Any] = {"backend": "inline", "tensorboard": False, "progress": "off", "log_every_steps": 1}
    return Placement(run_dir=run_dir, **(quietly | settings))


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a run that was never stopped, with a checkpoint of every barrier."""

    @cache
    def folder_of(name: str) -> Path:
        run_dir = tmp_path_factory.mktemp(name) / "run"
        train(Config(EXPERIMENTS[name], quiet(run_dir, checkpoint_every_updates=1, keep_checkpoints=NUM_BARRIERS + 1)))
        return run_dir

    return folder_of


def stopped_at(barriers: tuple[int, ...], run_dir: Path, folder: Path) -> Path:
    """A copy of a run, with these checkpoints alone and nothing of what is written at the end."""
    copy = folder / "run"
    others = [p.name for p in (run_dir / "checkpoints").iterdir() if p.name not in {f"{b:09d}" for b in barriers}]
    shutil.copytree(run_dir, copy, ignore=shutil.ignore_patterns("policy.safetensors", "result.json", *others))
    assert len(list((copy / "checkpoints").iterdir())) == len(barriers)
    return copy


def assert_resumes_from(barrier: int, run_dir: Path, folder: Path) -> None:
    copy = stopped_at((barrier,), run_dir, folder)
    result = resume(copy, placement=quiet())
    assert result.digest == json.loads((run_dir / "result.json").read_text())["digest"]
    assert_same_run(Outcome.read(copy), Outcome.read(run_dir))


@pytest.mark.parametrize("barrier", SAMPLED_BARRIERS)
@pytest.mark.parametrize("name", NAMES)
def test_a_run_resumed_from_a_barrier_ends_with_the_same_bits(
    tmp_path: Path, whole_run: Callable[[str], Path], name: str, barrier: int
) -> None:
    assert_resumes_from(barrier, whole_run(name), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("barrier", sorted({*range(1, NUM_BARRIERS)} - {*SAMPLED_BARRIERS}))
@pytest.mark.parametrize("name", NAMES)
def test_a_run_resumed_from_any_of_its_barriers_ends_with_the_same_bits(
    tmp_path: Path, whole_run: Callable[[str], Path], name: str, barrier: int
) -> None:
    assert_resumes_from(barrier, whole_run(name), tmp_path)


STEADY = replace(CARTPOLE, algorithm=A2C(anneal_learning_rate=False))


def test_a_run_resumed_with_more_steps_equals_one_that_had_them_from_the_start(tmp_path: Path) -> None:
    train(Config(of_length(STEADY, 20), quiet(tmp_path / "run")))
    resume(tmp_path / "run", total_steps=steps(STEADY, 35), placement=quiet())
    assert_same_run(Outcome.read(tmp_path / "run"), run(of_length(STEADY, 35), log_every_steps=1))


def test_a_run_resumed_twice_each_time_with_another_placement_ends_with_the_same_bits(tmp_path: Path) -> None:
    train(Config(of_length(STEADY, 10), quiet(tmp_path / "run")))
    processes = quiet(backend="processes", num_executors=2, num_actors=1)
    resume(tmp_path / "run", total_steps=steps(STEADY, 20), placement=processes)
    resume(tmp_path / "run", total_steps=steps(STEADY, 30), placement=quiet(num_executors=4, num_actors=2))
    assert_same_run(Outcome.read(tmp_path / "run"), run(of_length(STEADY, 30), log_every_steps=1))


def test_a_checkpoint_of_one_placement_is_resumed_by_another_in_the_middle_of_a_run(
    tmp_path: Path, whole_run: Callable[[str], Path]
) -> None:
    copy = stopped_at((31,), whole_run("cartpole"), tmp_path)
    resume(copy, placement=quiet(backend="processes", num_executors=2, num_actors=2))
    assert_same_run(Outcome.read(copy), Outcome.read(whole_run("cartpole")))


def edit_json(path: Path, edit: Callable[[Any], None]) -> None:
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))


def test_a_changed_experiment_is_refused_with_a_list_of_what_differs(
    tmp_path: Path, whole_run: Callable[[str], Path]
) -> None:
    copy = stopped_at((10,), whole_run("cartpole"), tmp_path)

    def change(document: Any) -> None:
        document["experiment"]["seed"] = 2
        document["experiment"]["algorithm"]["learning_rate"] = 0.001
        document["experiment"]["env_args"]["max_episode_steps"] = 30

    edit_json(copy / "config.json", change)
    digest_before = (copy / "digest.jsonl").read_bytes()
    with pytest.raises(ConfigError) as refusal:
        resume(copy, placement=quiet())
    lines = [line.strip() for line in str(refusal.value).splitlines()]
    assert lines[1:-1] == [
        "algorithm.learning_rate: 0.0007 -> 0.001",
        "env_args.max_episode_steps: 20 -> 30",
        "seed: 1 -> 2",
    ]
    assert (copy / "digest.jsonl").read_bytes() == digest_before


def compute_differently(run_dir: Path) -> None:
    edit_json(run_dir / "fingerprint.json", lambda document: document.update(torch="1.0.0"))


def test_different_numerics_are_refused_and_named(tmp_path: Path, whole_run: Callable[[str], Path]) -> None:
    copy = stopped_at((10,), whole_run("cartpole"), tmp_path)
    compute_differently(copy)
    with pytest.raises(ConfigError, match=r"(?s)computed differently.*torch.*1\.0\.0.*--allow-different-numerics"):
        resume(copy, placement=quiet())
    assert not (copy / "numerics_changes.json").exists()


def test_different_numerics_that_are_allowed_mark_the_run_for_good(
    tmp_path: Path, whole_run: Callable[[str], Path]
) -> None:
    copy = stopped_at((10,), whole_run("cartpole"), tmp_path)
    whole_fingerprint = (copy / "fingerprint.json").read_text()
    compute_differently(copy)
    longer = steps(CARTPOLE, NUM_BARRIERS + 10)
    known, stale = (copy / "videos" / f"step-{steps(CARTPOLE, barrier):010d}-seed-0.mp4" for barrier in (10, 11))
    known.parent.mkdir()
    for film in (known, stale):
        film.write_text("of a policy that this run had, or will not have")
    result = resume(copy, placement=quiet(), allow_different_numerics=True)
    assert known.exists()
    assert not stale.exists()
    assert result.numerics_changes == 1
    (change,) = json.loads((copy / "numerics_changes.json").read_text())
    assert change["version"] == 10
    assert any("torch" in line and "1.0.0" in line for line in change["changes"])
    assert json.loads((copy / "fingerprint.json").read_text()) == json.loads(whole_fingerprint)
    assert resume(copy, total_steps=longer, placement=quiet()).numerics_changes == 1
    assert json.loads((copy / "result.json").read_text())["numerics_changes"] == 1


def test_a_kill_before_other_numerics_are_noted_leaves_no_evaluation_of_versions_to_come(
    tmp_path: Path, whole_run: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = stopped_at((10,), whole_run("cartpole"), tmp_path)
    compute_differently(copy)
    lines = [json.dumps({"version": v, "step": steps(CARTPOLE, v), "eval/mean_reward": 9.0}) for v in (9, 11)]
    (copy / "evaluations.jsonl").write_text("".join(f"{line}\n" for line in lines))
    shutil.copy(whole_run("cartpole") / "policy.safetensors", copy)  # of version 50, as a damaged checkpoint leaves it

    def die(*_: Any) -> None:
        raise SystemExit("killed")

    monkeypatch.setattr(RunFolder, "note_change_of_numerics", die)
    with pytest.raises(SystemExit):
        resume(copy, placement=quiet(), allow_different_numerics=True)
    # Noted first, the change would be none any more to whoever resumes the run next, and version 11 another one's.
    assert [past.version for past in read_evaluations(copy / "evaluations.jsonl")] == [9]
    assert saved_policy(RunFolder(copy)).version == 10


def test_a_run_that_has_made_all_its_steps_is_not_resumed(tmp_path: Path, whole_run: Callable[[str], Path]) -> None:
    copy = tmp_path / "run"
    shutil.copytree(whole_run("cartpole"), copy)
    with pytest.raises(ConfigError, match=rf"has made its {CARTPOLE.total_steps:,} steps; ask for more"):
        resume(copy, placement=quiet())
    assert_same_run(Outcome.read(copy), Outcome.read(whole_run("cartpole")))


def test_a_run_that_is_under_way_is_not_resumed_and_its_process_is_named(
    tmp_path: Path, whole_run: Callable[[str], Path]
) -> None:
    copy = stopped_at((10,), whole_run("cartpole"), tmp_path)
    digest_before = (copy / "digest.jsonl").read_bytes()
    with (
        RunLock.acquire(copy),
        pytest.raises(RunFolderError, match=rf"{re.escape(str(copy))} is in use by process {os.getpid()} on "),
    ):
        resume(copy, placement=quiet())
    assert (copy / "digest.jsonl").read_bytes() == digest_before


def test_a_damaged_newest_checkpoint_is_passed_over_loudly_and_the_one_before_it_is_used(
    tmp_path: Path, whole_run: Callable[[str], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    copy = stopped_at((10, 20), whole_run("cartpole"), tmp_path)
    damaged = copy / "checkpoints" / "000000020" / "state.safetensors"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    resume(copy, placement=quiet())
    assert re.search(r"^warning: passed over a damaged checkpoint: .*000000020", capfd.readouterr().err, re.MULTILINE)
    assert_same_run(Outcome.read(copy), Outcome.read(whole_run("cartpole")))


def test_a_run_without_any_whole_checkpoint_says_how_to_begin_it_anew(
    tmp_path: Path, whole_run: Callable[[str], Path]
) -> None:
    copy = stopped_at((), whole_run("cartpole"), tmp_path)
    shutil.copy(whole_run("cartpole") / "result.json", copy)
    with pytest.raises(RunFolderError, match=r"holds no whole checkpoint .* `htsrl train --config .*config\.json`"):
        resume(copy, placement=quiet())


def test_a_digest_that_lacks_barriers_before_the_checkpoint_is_not_continued(
    tmp_path: Path, whole_run: Callable[[str], Path]
) -> None:
    copy = stopped_at((10,), whole_run("cartpole"), tmp_path)
    lines = (copy / "digest.jsonl").read_text().splitlines(keepends=True)
    (copy / "digest.jsonl").write_text("".join(lines[:5]))
    with pytest.raises(RunFolderError, match=r"digest\.jsonl lacks barriers before version 10"):
        resume(copy, placement=quiet())


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_interrupted_around_the_record_of_an_update_is_resumed_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: Literal["before", "after"]
) -> None:
    """The learner counts an update before it is recorded, and publishes it after."""
    record = Recorder.record

    def interrupted_record(self: Recorder, report: UpdateReport) -> None:
        if report.version != 3:
            record(self, report)
            return
        if when == "after":
            record(self, report)
        raise KeyboardInterrupt

    experiment = Experiment("CartPole-v1", algorithm=A2C(), num_envs=2, sync_interval=4, total_steps=80)
    quiet = Placement("inline", tensorboard=False, progress="off", run_dir=tmp_path / "run")
    with monkeypatch.context() as patched:
        patched.setattr(Recorder, "record", interrupted_record)
        with pytest.raises(KeyboardInterrupt):
            train(Config(experiment, quiet))
    undisturbed = train(Config(experiment, replace(quiet, run_dir=tmp_path / "undisturbed")))
    assert resume(tmp_path / "run").digest == undisturbed.digest
