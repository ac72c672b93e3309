"""Runs that learn from a replay buffer: the same bits on any placement, through kills and resumes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Outcome, assert_same_run, run

from htsrl import SAC, Config, Experiment, Network, Placement, evaluate, resume, train
from htsrl.checkpoint.files import newest_valid
from htsrl.export import export
from htsrl.processes.kill_points import KILL_AT, KILL_ONCE
from htsrl.runs.evaluations import read_evaluations
from htsrl.runs.folder import RunFolder

NUM_UPDATES = 12
EXPERIMENT = Experiment(
    "Pendulum-v1",
    {"max_episode_steps": 7},
    # The buffer is full, and written over, from the eighth update on.
    algorithm=SAC(learning_starts=24, minibatch_size=16, n_step=2, replay_capacity=56, update_to_data=0.5),
    network=Network(hidden_sizes=(16,), activation="relu", normalize_observations=True),
    num_envs=2,
    sync_interval=4,
    total_steps=NUM_UPDATES * 8,
    gradient_shards=2,
)


@cache
def oracle() -> Outcome:
    """Undisturbed, in this process."""
    return run(EXPERIMENT, log_every_steps=1, check_env=False)


def quietly(run_dir: Path, **settings: Any) -> Placement:
    defaults: dict[str, Any] = {"backend": "inline", "tensorboard": False, "progress": "off", "log_every_steps": 1}
    return Placement(**(defaults | {"run_dir": run_dir, "check_env": False} | settings))


def test_in_processes_of_which_one_is_killed_the_bits_are_those_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KILL_AT, "inside a replay write:48")  # five fields an update, so over the oldest rollout
    monkeypatch.setenv(KILL_ONCE, str(tmp_path / "killed"))
    placement = quietly(tmp_path / "run", backend="processes", num_executors=2, learner_workers=2)
    assert train(Config(EXPERIMENT, placement)).restarts == 1
    assert_same_run(Outcome.read(tmp_path / "run"), oracle())


@pytest.mark.parametrize("num_updates", [5, 10])
def test_a_run_is_resumed_to_the_same_bits_with_a_buffer_half_full_and_full(num_updates: int, tmp_path: Path) -> None:
    train(Config(replace(EXPERIMENT, total_steps=num_updates * 8), quietly(tmp_path / "run")))
    found = newest_valid(RunFolder.existing(tmp_path / "run").checkpoints_dir, print)
    assert found is not None
    assert len(found[1].arrays["replay/rewards"]) == min(num_updates * 4, 28), "what is filled, and no more"
    resume(tmp_path / "run", total_steps=EXPERIMENT.total_steps)
    assert_same_run(Outcome.read(tmp_path / "run"), oracle())


def test_data_are_one_version_old_and_learning_begins_when_there_is_enough_to_draw_from() -> None:
    metrics = oracle().metrics
    assert [line["hts/lag"] for line in metrics] == [0.0, *[1.0] * (NUM_UPDATES - 1)]
    assert ["train/critic_loss" in line for line in metrics] == [False, False, *[True] * (NUM_UPDATES - 2)]


def test_evaluation_beside_training_plays_the_frozen_policy_and_changes_no_bit(tmp_path: Path) -> None:
    train(Config(EXPERIMENT, quietly(tmp_path / "run", eval_every=40, eval_episodes=2)))
    outcome = Outcome.read(tmp_path / "run")
    assert (outcome.digest, outcome.policy) == (oracle().digest, oracle().policy)
    last = read_evaluations(RunFolder(tmp_path / "run").evaluations_file)[-1]
    assert (last.version, last.mean_return) == (NUM_UPDATES, evaluate(tmp_path / "run", episodes=2).mean_return)


def test_a_policy_with_deviations_of_its_own_is_evaluated_and_exported(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    train(Config(EXPERIMENT, quietly(tmp_path / "run")))
    assert np.isfinite(evaluate(tmp_path / "run", episodes=1).returns).all()
    assert set(export(tmp_path / "run").differences) == {"policy.onnx", "policy.pt2"}
