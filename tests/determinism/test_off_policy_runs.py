"""TD3, DQN and prioritised replay: the same bits on any placement, through kills and resumes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from helpers import Outcome, assert_same_run, run
from test_replay_runs import quietly

from htsrl import DQN, TD3, Config, DiscreteSAC, Experiment, Network, evaluate, resume, train
from htsrl.checkpoint.files import newest_valid
from htsrl.export import export
from htsrl.processes.kill_points import KILL_AT, KILL_ONCE
from htsrl.runs.folder import RunFolder

NUM_UPDATES = 12
PENDULUM = Experiment(
    "Pendulum-v1",
    {"max_episode_steps": 7},
    # The buffer is full, and written over, from the eighth update on.
    algorithm=TD3(learning_starts=24, minibatch_size=16, n_step=2, replay_capacity=56, update_to_data=0.6),
    network=Network(hidden_sizes=(16,), activation="relu", normalize_observations=True),
    num_envs=2,
    sync_interval=4,
    total_steps=NUM_UPDATES * 8,
    gradient_shards=2,
)
SMALL_DQN = DQN(
    learning_starts=24,
    minibatch_size=16,
    n_step=2,
    replay_capacity=56,
    update_to_data=0.6,
    duelling=True,
    target_period=5,
    exploration_steps=60,
    learning_rate=1e-3,
)
CARTPOLE = replace(PENDULUM, env="CartPole-v1", env_args={"max_episode_steps": 7}, algorithm=SMALL_DQN)
EXPERIMENTS = {
    "td3": PENDULUM,
    "dqn": CARTPOLE,
    "prioritised dqn": replace(CARTPOLE, algorithm=replace(SMALL_DQN, priority_exponent=0.6)),
    "prioritised td3": replace(PENDULUM, algorithm=replace(PENDULUM.algorithm, priority_exponent=0.6)),
    "discrete sac": replace(
        CARTPOLE,
        algorithm=DiscreteSAC(learning_starts=24, minibatch_size=16, replay_capacity=56, priority_exponent=0.4),
    ),
}
QUICK = ("td3", "dqn", "prioritised dqn")
NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in EXPERIMENTS]
KILLED = {
    "td3": "inside a replay write:48",
    "dqn": "before a rollout counts:9",
    "prioritised dqn": "inside a revision of priorities:9",
    "prioritised td3": "optimizer step:23",
    "discrete sac": "before a publish:10",
}


@cache
def oracle(name: str) -> Outcome:
    """Undisturbed, in this process."""
    return run(EXPERIMENTS[name], log_every_steps=1, check_env=False)


@pytest.mark.parametrize("name", NAMES)
def test_in_processes_of_which_one_is_killed_the_bits_are_those_of_one_process(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KILL_AT, KILLED[name])
    monkeypatch.setenv(KILL_ONCE, str(tmp_path / "killed"))
    placement = quietly(tmp_path / "run", backend="processes", num_executors=2, learner_workers=2)
    assert train(Config(EXPERIMENTS[name], placement)).restarts == 1
    assert_same_run(Outcome.read(tmp_path / "run"), oracle(name))


@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_resumed_to_the_same_bits_with_a_buffer_half_full_and_full(name: str, tmp_path: Path) -> None:
    experiment = EXPERIMENTS[name]
    train(Config(replace(experiment, total_steps=5 * 8), quietly(tmp_path / "run", checkpoint_every_updates=2)))
    resume(tmp_path / "run", total_steps=10 * 8)
    found = newest_valid(RunFolder.existing(tmp_path / "run").checkpoints_dir, print)
    assert found is not None
    assert len(list(found[0].glob("rollouts-*"))) > 1, "some of it was written before the run was resumed"
    assert len(found[1].arrays["replay/rewards"]) == 28, "all that there is room for"
    resume(tmp_path / "run", total_steps=experiment.total_steps)
    assert_same_run(Outcome.read(tmp_path / "run"), oracle(name))


def test_priorities_change_what_is_learned() -> None:
    assert oracle("dqn").links[1] == oracle("prioritised dqn").links[1], "nobody has learned yet"
    assert oracle("dqn").digest != oracle("prioritised dqn").digest


def test_policies_with_an_exploration_of_their_own_are_evaluated_and_exported(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    for name in ("td3", "dqn"):
        train(Config(EXPERIMENTS[name], quietly(tmp_path / name)))
        assert np.isfinite(evaluate(tmp_path / name, episodes=1).returns).all()
        assert np.isfinite(evaluate(tmp_path / name, episodes=1, sampled=True).returns).all()
        assert set(export(tmp_path / name).differences) == {"policy.onnx", "policy.pt2"}
