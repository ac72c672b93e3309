"""Batched simulators: a lane of environments asks, steps and comes back as one, to the bits of each alone."""

from __future__ import annotations

import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scripted
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from helpers import Outcome, assert_same_run, run

from examples.reach import Reach
from htsrl import A2C, DQN, PPO, SAC, Config, ConfigError, Experiment, Network, Placement, evaluate, resume, train
from htsrl.config.check import check
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.envs.check.lanes import check_lanes
from htsrl.envs.lanes.look import play, same
from htsrl.envs.lanes.make import lane_of
from htsrl.envs.lanes.vector import VectorLane
from htsrl.placements.blueprint import Blueprint
from htsrl.placements.inline import run_inline
from htsrl.placements.supervisor import Listeners
from htsrl.placements.survey import draw_blueprint
from htsrl.processes.kill_points import KILL_AT, KILL_ONCE
from htsrl.runs.folder import RunFolder
from htsrl.runs.start import initialise
from htsrl.seeding import ActionNoise, reset_seed, reset_seeds
from htsrl.spaces import Interface

NUM_UPDATES = 6
REACH = Experiment(
    Reach,
    algorithm=PPO(epochs=1, num_minibatches=2, anneal_learning_rate=False),
    num_envs=12,
    lanes=3,
    sync_interval=20,
    total_steps=NUM_UPDATES * 240,
)
CARTPOLE = replace(REACH, env="CartPole-v1", env_args={"max_episode_steps": 15})


def quietly(**settings: Any) -> Placement:
    usual: dict[str, Any] = {"backend": "inline", "tensorboard": False, "progress": "off", "log_every_steps": 1}
    return Placement(**(usual | settings))


def first_batches(experiment: Experiment, count: int = 1) -> list[dict[str, np.ndarray[Any, Any]]]:
    """What the first updates learn from, copied."""
    with tempfile.TemporaryDirectory() as folder:
        return _first_batches(experiment, count, RunFolder(Path(folder)))


def _first_batches(experiment: Experiment, count: int, folder: RunFolder) -> list[dict[str, np.ndarray[Any, Any]]]:
    checked = check(Config(experiment, quietly(check_env=False, timeline=False, run_dir=folder.path)))
    blueprint: Blueprint = draw_blueprint(checked)
    block = SharedArrays(blueprint.block_specs())
    batches: list[dict[str, np.ndarray[Any, Any]]] = []
    shared = blueprint.shared(block)

    def keep(report: Any) -> None:
        storage = shared.storages.of_rollout(report.version - 1)
        batches.append({name: np.array(x) for name, x in shared.storages.batch(storage).items()})

    try:
        initialise(blueprint, block, folder)
        run_inline(blueprint, block, Listeners(keep, lambda written: None, lambda text: None))
    finally:
        block.close()
    return batches[:count]


@pytest.fixture(scope="module")
def reach() -> Outcome:
    """Undisturbed, in this process."""
    return run(REACH, log_every_steps=1)


def test_noise_and_seeds_of_many_environments_are_those_of_each() -> None:
    for noise in (ActionNoise(gumbel=3), ActionNoise(gumbel=1, normal=2)):
        many = noise.draw_many(5, range(7, 10), first_step=40, num_steps=6)
        assert many.shape == (6, 3, noise.columns)
        for place, env in enumerate(range(7, 10)):
            np.testing.assert_array_equal(many[:, place], noise.draw(5, env, 40, 6))
    assert reset_seeds(3, [4, 0], [2, 9]).tolist() == [reset_seed(3, 4, 2), reset_seed(3, 0, 9)]


def test_a_lane_of_many_environments_makes_the_trajectories_of_lanes_of_one() -> None:
    """Every environment and episode has its own seed and noise; the learner's first batch shows it."""
    together, alone = (first_batches(replace(REACH, lanes=lanes))[0] for lanes in (3, 12))
    for name in ("obs", "actions", "rewards", "terminated", "truncated", "episode_returns", "episode_lengths"):
        np.testing.assert_array_equal(together[name], alone[name], err_msg=name)
    assert together["terminated"].any() or together["truncated"].any()


def test_a_scripted_lane_is_stored_step_by_step() -> None:
    """By hand: episodes of 3, 4 and 5 steps, the middle one cut; rewards are the step's number and the action."""
    experiment = Experiment(
        scripted.Counting, algorithm=A2C(), num_envs=3, lanes=1, sync_interval=8, total_steps=24, seed=7
    )
    with pytest.warns(UserWarning, match="cannot save their state"):
        batch = first_batches(experiment)[0]
    steps = batch["rewards"] - batch["actions"]
    assert steps[:, 0].tolist() == [1, 2, 3, 1, 2, 3, 1, 2]
    assert steps[:, 1].tolist() == [1, 2, 3, 4, 1, 2, 3, 4]
    assert steps[:, 2].tolist() == [1, 2, 3, 4, 5, 1, 2, 3]
    assert np.flatnonzero(batch["terminated"][:, 0]).tolist() == [2, 5]
    assert np.flatnonzero(batch["truncated"][:, 1]).tolist() == [3, 7]
    assert batch["obs"][3, 0].tolist() == [reset_seed(7, 0, 1) % 1000, 0]
    assert batch["obs"][5, 2].tolist() == [reset_seed(7, 2, 1) % 1000, 0]
    assert batch["episode_lengths"][:, 1].tolist() == [0, 0, 0, 4, 0, 0, 0, 4]
    assert batch["episode_returns"][4, 2] == batch["rewards"][:5, 2].sum()
    assert batch["info/is_success"][3, 1] == 1
    assert np.isnan(batch["info/is_success"][2, 1])
    assert "active" not in batch
    cut = np.zeros((8, 3), bool)
    cut[[3, 7], 1] = True
    assert (batch["bootstrap_values"][:7][cut[:7]] != 0).all()
    assert (batch["bootstrap_values"][:7][~cut[:7]] == 0).all()


def test_the_final_observation_of_a_cut_episode_is_what_its_value_is_of() -> None:
    """The value that stands in the batch is that of (seed, 4), which the next row does not show any more."""
    import torch

    experiment = Experiment(scripted.Saving, algorithm=A2C(), num_envs=3, lanes=1, sync_interval=8, total_steps=24)
    batch = first_batches(experiment)[0]
    policy = draw_blueprint(check(Config(experiment, quietly(check_env=False)))).build_policy()
    final = torch.tensor([[float(reset_seed(experiment.seed, 1, 0) % 1000), 4.0]])
    with torch.inference_mode():
        _, value = policy({"obs": final})
    assert batch["bootstrap_values"][3, 1] == pytest.approx(value.item(), rel=1e-3)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_each_autoreset_mode_of_gymnasium_gives_true_final_observations(mode: str) -> None:
    """Environment 1: four steps of episode 0, then episode 1; by the next step, one step goes by in between."""
    lane = VectorLane(scripted.CountingVector(3, mode))
    rows = Interface(lane.observation_space, lane.action_space).empty_rows(3)
    lane.reset(np.arange(3), rows)
    shown, begun = [], []
    for _ in range(6):
        outcome = lane.step(np.zeros(3, np.int64), rows)
        shown.append(rows["obs"][1].tolist())
        if outcome.ended.any():
            lane.begin_episodes(outcome.ended, np.zeros(3, np.int64), rows)
        begun.append(rows["obs"][1].tolist())
    assert shown[:4] == [[0, 1], [0, 2], [0, 3], [0, 4]]
    if mode == "NextStep":
        assert lane.idles
        assert begun[3] == [0, 4]
        assert shown[4:] == [[1, 0], [1, 1]]
    else:
        assert not lane.idles
        assert begun[3] == [1, 0]
        assert shown[4:] == [[1, 1], [1, 2]]


def test_what_cannot_give_final_observations_says_so_and_shows_the_last_one_before() -> None:
    experiment = Experiment(
        scripted.CountingVector, {"mode": "SameStep", "gives_finals": False}, algorithm=A2C(), num_envs=3, lanes=1,
        sync_interval=8, total_steps=24,
    )  # fmt: skip
    import torch

    with pytest.warns(UserWarning, match="stands in for what followed"):
        batch = first_batches(experiment)[0]
    policy = draw_blueprint(check(Config(experiment, quietly(check_env=False)))).build_policy()
    with torch.inference_mode():
        _, value = policy({"obs": torch.tensor([[0.0, 3.0]])})
    assert batch["bootstrap_values"][3, 1] == pytest.approx(value.item(), rel=1e-3)


def test_steps_that_only_begin_an_episode_are_not_learned_from() -> None:
    experiment = Experiment(
        scripted.CountingVector, algorithm=A2C(), num_envs=3, lanes=1, sync_interval=8, total_steps=24
    )
    batch = first_batches(experiment)[0]
    assert np.flatnonzero(~batch["active"][:, 0]).tolist() == [3, 7]
    assert np.flatnonzero(~batch["active"][:, 1]).tolist() == [4]
    assert batch["rewards"][:, 1].tolist() == [1, 2, 3, 4, 0, 1, 2, 3]
    assert batch["episode_lengths"][:, 0].tolist() == [0, 0, 3, 0, 0, 0, 3, 0]


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_gymnasiums_own_vectors_can_be_lanes(mode: AutoresetMode) -> None:
    """The same seeds and actions lead two vectors to the same; with their own resets, to environments alone."""
    import gymnasium

    def vector(num_envs: int) -> Any:
        return SyncVectorEnv(
            [lambda: gymnasium.make("CartPole-v1", max_episode_steps=9)] * num_envs, autoreset_mode=mode
        )

    experiment = replace(REACH, env=vector, num_envs=4, lanes=2, sync_interval=12, total_steps=48)
    with pytest.warns(UserWarning, match="cannot save their state"):
        batch = first_batches(experiment)[0]
    if mode is AutoresetMode.DISABLED:
        alone = replace(experiment, env="CartPole-v1", env_args={"max_episode_steps": 9}, lanes=None)
        for name in ("obs", "actions", "rewards", "truncated", "terminated"):
            np.testing.assert_array_equal(batch[name], first_batches(alone)[0][name], err_msg=name)
    assert (batch["truncated"] | batch["terminated"]).any()


@pytest.mark.parametrize(
    ("experiment", "text"),
    [
        (replace(REACH, num_envs=13), "num_envs=13 environments do not divide into lanes=3; use num_envs=12 or 15"),
        (replace(REACH, lanes=0), "lanes=0 must be at least 1"),
        (replace(REACH, schedule="async"), "lanes=3 does not go with schedule=async"),
        (replace(REACH, on_env_error="truncate"), "lanes=3 step many in a call"),
        (replace(REACH, env="Acrobot-v1"), "Acrobot-v1 has no vector entry point"),
        (replace(REACH, env="Nothing-v1"), "Nothing-v1 is not a registered environment"),
        (replace(REACH, env=lambda num_envs: 3), "without single_observation_space"),
        (replace(REACH, env=scripted.WrongCount), "a vector of 5 environments, asked for num_envs=4"),
        (replace(REACH, env=scripted.WrongShape), r"info['is_success'] of the lane has shape (7,)"),
        (replace(REACH, env=scripted.NotFinite), "the observation of the lane's environment 1 is not finite"),
        (replace(REACH, env=scripted.WrongDtype), "has dtype float64, its space has float32"),
        (replace(REACH, env=scripted.OddRewards), "rewards of the lane are float32 of shape (3,)"),
        (replace(REACH, env=scripted.Forgetful), "continues in another way"),
        (
            replace(REACH, env=scripted.CountingVector, algorithm=DQN(), network=Network(hidden_sizes=(8,))),
            "dqn has a replay buffer, and the simulator spends a step on beginning each episode",
        ),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_a_lane_that_cannot_work_is_one_clear_error(experiment: Experiment, text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        draw_blueprint(check(Config(experiment, quietly())))


SMALL_REPLAY: dict[str, Any] = {"learning_starts": 24, "minibatch_size": 16, "replay_capacity": 56}


@pytest.mark.filterwarnings("ignore:lanes of .* cannot save their state")
@pytest.mark.parametrize("algorithm", [pytest.param(DQN(**SMALL_REPLAY), marks=pytest.mark.slow), SAC(**SMALL_REPLAY)])
def test_a_replay_buffer_is_filled_from_lanes_as_from_environments_alone(algorithm: Any) -> None:
    import gymnasium

    env_id = "CartPole-v1" if algorithm.name == "dqn" else "Pendulum-v1"

    def vector(num_envs: int) -> Any:
        make = [lambda: gymnasium.make(env_id, max_episode_steps=7)] * num_envs
        return SyncVectorEnv(make, autoreset_mode=AutoresetMode.DISABLED)

    network = Network(hidden_sizes=(16,), activation="relu")
    alone = Experiment(
        env_id,
        {"max_episode_steps": 7},
        algorithm=algorithm,
        network=network,
        num_envs=4,
        sync_interval=2,
        total_steps=64,
    )
    lanes = replace(alone, env=vector, env_args={}, lanes=2)
    inline = run(lanes, log_every_steps=1, check_env=False)
    assert_same_run(run(lanes, log_every_steps=1, check_env=False, backend="processes", num_executors=2), inline)
    for ours, theirs in zip(first_batches(lanes, 3), first_batches(alone, 3), strict=True):  # before anybody learns
        for name in ("obs", "final/obs", "rewards", "terminated", "truncated"):
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


def test_a_resumed_run_of_lanes_ends_in_the_same_bits(reach: Outcome, tmp_path: Path) -> None:
    placement = quietly(run_dir=tmp_path / "run", checkpoint_every_updates=1)
    train(Config(replace(REACH, total_steps=REACH.total_steps // 2), placement))
    resume(tmp_path / "run", total_steps=REACH.total_steps, env=Reach)
    assert Outcome.read(tmp_path / "run").digest == reach.digest


@pytest.mark.parametrize("env", [scripted.Counting, "CartPole-v1"])
def test_lanes_come_back_by_their_log_or_by_their_plain_state(env: Any, tmp_path: Path) -> None:
    """The one has no state to save; of Gymnasium's CartPole, the arrays and the generator are the state."""
    experiment = replace(CARTPOLE if env == "CartPole-v1" else REACH, env=env, total_steps=4 * 240)
    whole = run(experiment, log_every_steps=1)
    train(
        Config(replace(experiment, total_steps=2 * 240), quietly(run_dir=tmp_path / "run", checkpoint_every_updates=1))
    )
    resume(tmp_path / "run", total_steps=4 * 240, **({} if isinstance(env, str) else {"env": env}))
    assert Outcome.read(tmp_path / "run").digest == whole.digest


def test_processes_of_which_one_is_killed_give_the_bits_of_one_process(
    reach: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KILL_AT, "inside a storage write:50")
    monkeypatch.setenv(KILL_ONCE, str(tmp_path / "killed"))
    result = run(REACH, backend="processes", num_executors=2, log_every_steps=1)
    assert (tmp_path / "killed").exists()
    assert_same_run(reach, result)


def test_a_policy_trained_in_lanes_is_evaluated_one_environment_at_a_time(tmp_path: Path) -> None:
    train(Config(replace(REACH, total_steps=240), quietly(run_dir=tmp_path / "run")))
    assert len(evaluate(tmp_path / "run", episodes=3, env=Reach).returns) == 3


@pytest.mark.parametrize(
    ("env", "level", "text"),
    [
        (Reach, "ok", "can be saved and restored"),
        (scripted.Counting, "warn", "cannot be saved"),
        (scripted.NotFinite, "fail", "not finite"),
        (scripted.Random, "fail", "part at call 0"),
    ],
)
def test_check_env_knows_lanes(env: Any, level: str, text: str) -> None:
    report = check_lanes(check(Config(replace(REACH, env=env))).experiment, steps=400)
    assert any(finding.level == level and text in finding.text for finding in report.findings), str(report)


def test_envpool_repeats_and_begins_episodes_in_a_step_of_their_own() -> None:
    pytest.importorskip("envpool")
    played = []
    for _ in range(2):
        lane = lane_of("envpool/CartPole-v1", {}, (), num_envs=4)
        played.append(play(lane, Interface(lane.observation_space, lane.action_space), 40))
        lane.close()
    assert all(map(same, *played))
    ends = np.array([outcome.ended for _, outcome in played[0]])
    step, env = np.argwhere(ends)[0]
    assert lane.idles
    assert played[0][step + 1][1].rewards[env] == 0
    assert not ends[step + 1, env]
