"""Evaluation is a function of the policy, the seed and the number of episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control.pendulum import PendulumEnv

import htsrl
from htsrl import A2C, Config, ConfigError, Evaluation, Experiment, Network, Placement, RunFolderError, evaluate
from htsrl.policies.policy import Policy, build_policy
from htsrl.runs.folder import RunFolder
from htsrl.runs.play import MAX_SEATS
from htsrl.runs.saved_policy import saved_policy
from htsrl.seeding import ActionNoise, Purpose, reset_seed

NUM_EPISODES = MAX_SEATS + 5


def train(path: Path, **experiment: Any) -> Path:
    description = Experiment(
        algorithm=A2C(learning_rate=3e-3),
        network=Network(hidden_sizes=(16,)),
        num_envs=4,
        total_steps=400,
        **experiment,
    )
    placement = Placement(backend="inline", run_dir=path, progress="off", tensorboard=False)
    return htsrl.train(Config(description, placement)).run_dir


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(
        tmp_path_factory.mktemp("evaluate") / "cartpole", env="CartPole-v1", env_args={"max_episode_steps": 60}
    )


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("evaluate") / "pendulum", env="Pendulum-v1", env_args={"max_episode_steps": 9})


def load_policy(run_dir: Path, env: gymnasium.Env[Any, Any]) -> Policy:
    policy = build_policy(env.observation_space, env.action_space, Network(hidden_sizes=(16,)), seed=0)
    saved_policy(RunFolder.existing(run_dir)).fill(policy)
    return policy


def play_cartpole_alone(run_dir: Path, episode: int, seed: int, sampled: bool) -> tuple[float, int]:
    """One episode, one environment, no seats."""
    env = gymnasium.make("CartPole-v1", max_episode_steps=60)
    policy = load_policy(run_dir, env)
    obs, _ = env.reset(seed=reset_seed(seed, 0, episode, Purpose.EVALUATION_RESET))
    total, length, over = 0.0, 0, False
    while not over:
        noise = ActionNoise(gumbel=2).draw(seed, episode, length, 1, Purpose.EVALUATION_NOISE)
        with torch.inference_mode():
            distribution, _ = policy({"obs": torch.from_numpy(obs)[None]})
        action = distribution.sample(torch.from_numpy(noise)) if sampled else distribution.mode()
        obs, reward, terminated, truncated, _ = env.step(int(action))
        total, length, over = total + float(reward), length + 1, terminated or truncated
    env.close()
    return total, length


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("run", ["cartpole", "pendulum"])
def test_the_same_seed_gives_the_same_result_and_another_seed_another(
    run: str, sampled: bool, request: pytest.FixtureRequest
) -> None:
    run_dir = request.getfixturevalue(run)
    first = evaluate(run_dir, episodes=5, seed=3, sampled=sampled)
    assert evaluate(run_dir, episodes=5, seed=3, sampled=sampled) == first
    assert evaluate(run_dir, episodes=5, seed=4, sampled=sampled).returns != first.returns


@pytest.mark.parametrize("sampled", [False, True], ids=["greedy", "sampled"])
def test_many_episodes_on_few_seats_are_those_that_each_would_be_alone(cartpole: Path, sampled: bool) -> None:
    result = evaluate(cartpole, episodes=NUM_EPISODES, seed=7, sampled=sampled)
    assert len(result.returns) == len(result.lengths) == NUM_EPISODES > MAX_SEATS
    for episode in (0, 1, MAX_SEATS - 1, MAX_SEATS, NUM_EPISODES - 1):
        alone = play_cartpole_alone(cartpole, episode, seed=7, sampled=sampled)
        assert (result.returns[episode], result.lengths[episode]) == alone


def test_asking_for_more_episodes_does_not_change_the_first_ones(cartpole: Path) -> None:
    many = evaluate(cartpole, episodes=NUM_EPISODES, sampled=True)
    few = evaluate(cartpole, episodes=3, sampled=True)
    assert many.returns[:3] == few.returns
    assert many.lengths[:3] == few.lengths


def test_sampled_actions_play_other_episodes_than_the_likeliest_ones(cartpole: Path, pendulum: Path) -> None:
    for run_dir in (cartpole, pendulum):
        assert evaluate(run_dir, episodes=5).returns != evaluate(run_dir, episodes=5, sampled=True).returns


def test_greedy_actions_ignore_the_noise(cartpole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = evaluate(cartpole, episodes=3)
    monkeypatch.setattr(ActionNoise, "draw", lambda *arguments: np.full((1, 2), np.nan, np.float32))
    assert evaluate(cartpole, episodes=3) == before


def test_continuous_actions_are_kept_within_their_bounds(pendulum: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torques: list[float] = []
    step: Any = PendulumEnv.step

    def recording_step(self: PendulumEnv, action: Any) -> Any:
        torques.append(float(action[0]))
        return step(self, action)

    monkeypatch.setattr(PendulumEnv, "step", recording_step)
    result = evaluate(pendulum, episodes=10, sampled=True)
    assert result.lengths == (9,) * 10
    assert len(torques) == 90
    assert max(map(abs, torques)) == 2.0


def test_mean_and_deviation_are_those_of_the_returns() -> None:
    result = Evaluation(returns=(1.0, 2.0, 6.0), lengths=(1, 2, 6))
    assert result.mean_return == pytest.approx(3.0)
    assert result.std_return == pytest.approx(np.sqrt(14 / 3))


def test_evaluating_leaves_the_folder_and_the_threads_as_they_were(cartpole: Path) -> None:
    def contents() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in cartpole.rglob("*") if path.is_file()}

    before, threads = contents(), torch.get_num_threads()
    evaluate(cartpole, episodes=2)
    assert contents() == before
    assert torch.get_num_threads() == threads


def test_no_episodes_and_no_run_are_refused_in_words(cartpole: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="episodes=0"):
        evaluate(cartpole, episodes=0)
    with pytest.raises(RunFolderError, match=r"no config\.json"):
        evaluate(tmp_path)
