"""The toys are what their docstrings say, and functions of the reset seed and the actions."""

from __future__ import annotations

import time
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

from htsrl.envs.contract import check_contract
from htsrl.envs.make import make_env
from htsrl.envs.toy import BALL_COLOUR, CELL_PIXELS, PADDLE_COLOUR, PixelCatch, Sleeping, Tagged
from htsrl.errors import ConfigError

REPLAYABLE_TOYS: list[tuple[str, dict[str, Any]]] = [
    ("htsrl/PixelCatch-v0", {}),
    ("htsrl/PixelCatch-v0", {"step_limit": 7}),
    ("htsrl/Sleeping-v0", {"mean_seconds": 0.0}),
    ("htsrl/Sleeping-v0", {"law": "gamma", "cv": 0.5, "mean_seconds": 1e-6}),
    ("htsrl/Tagged-v0", {"count_total_steps": False}),
]
LEFT, STAY, RIGHT = 0, 1, 2


def trajectory(env: gymnasium.Env[Any, Any], seed: int, actions: list[int]) -> list[tuple[Any, ...]]:
    """All that one episode returns, until its end or the end of the actions."""
    steps: list[tuple[Any, ...]] = [(env.reset(seed=seed)[0].tobytes(),)]
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        steps.append((observation.tobytes(), reward, terminated, truncated))
        if terminated or truncated:
            break
    return steps


@pytest.mark.parametrize(("env_id", "env_args"), REPLAYABLE_TOYS)
def test_gymnasiums_checker_has_nothing_to_say(env_id: str, env_args: dict[str, Any]) -> None:
    env = make_env(env_id, env_args, ()).unwrapped
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env)


@pytest.mark.parametrize(("env_id", "env_args"), [*REPLAYABLE_TOYS, ("htsrl/Tagged-v0", {})])
def test_our_own_contract_is_kept(env_id: str, env_args: dict[str, Any]) -> None:
    check_contract(make_env(env_id, env_args, ()))


@pytest.mark.parametrize(("env_id", "env_args"), REPLAYABLE_TOYS)
def test_an_episode_is_a_function_of_its_seed_and_actions_whatever_came_before(
    env_id: str, env_args: dict[str, Any]
) -> None:
    fresh, used = make_env(env_id, env_args, ()), make_env(env_id, env_args, ())
    trajectory(used, seed=99, actions=[0, 1, 1])
    actions = [int(action) for action in np.random.default_rng(5).integers(2, size=200)]
    assert trajectory(fresh, seed=7, actions=actions) == trajectory(used, seed=7, actions=actions)


@pytest.mark.parametrize(("env_id", "env_args"), REPLAYABLE_TOYS)
def test_writing_into_an_observation_does_not_change_the_episode(env_id: str, env_args: dict[str, Any]) -> None:
    env, twin = make_env(env_id, env_args, ()), make_env(env_id, env_args, ())
    env.reset(seed=0)[0][:] = 0
    twin.reset(seed=0)
    for _ in range(3):
        observation, reward, *_ = env.step(1)
        twin_observation, twin_reward, *_ = twin.step(1)
        assert (observation.tobytes(), reward) == (twin_observation.tobytes(), twin_reward)
        observation[:] = 0


@pytest.mark.parametrize(("env_id", "env_args"), REPLAYABLE_TOYS)
def test_seeds_make_a_difference(env_id: str, env_args: dict[str, Any]) -> None:
    env = make_env(env_id, env_args, ())
    assert len({env.reset(seed=seed)[0].tobytes() for seed in range(20)}) > 1


def ball_and_paddle(frame: np.ndarray[Any, Any]) -> tuple[int, int, int]:
    """Row and column of the ball and the column of the paddle's middle, from the pixels alone."""
    cells = frame[0, ::CELL_PIXELS, ::CELL_PIXELS]
    ((row, column),) = np.argwhere(cells == BALL_COLOUR)
    paddle_columns = np.flatnonzero((cells[-1] == PADDLE_COLOUR) | ((cells[-1] == BALL_COLOUR) & (row == 10)))
    return int(row), int(column), round(float(paddle_columns.mean()))


def towards_ball(frame: np.ndarray[Any, Any]) -> int:
    _, column, paddle = ball_and_paddle(frame)
    return STAY + int(np.sign(column - paddle))


def play(env: PixelCatch, seed: int, policy: Any) -> tuple[list[float], bool, bool]:
    observation, _ = env.reset(seed=seed)
    rewards: list[float] = []
    terminated = truncated = False
    while not (terminated or truncated):
        observation, reward, terminated, truncated, _ = env.step(policy(observation))
        rewards.append(reward)
    return rewards, terminated, truncated


def test_pixel_catch_is_won_by_a_policy_that_follows_the_ball_on_the_screen() -> None:
    for seed in range(30):
        rewards, terminated, truncated = play(PixelCatch(), seed, towards_ball)
        assert rewards == ([0.0] * 9 + [1.0]) * 5
        assert (terminated, truncated) == (True, False)


def test_pixel_catch_is_lost_by_standing_still_and_by_chance() -> None:
    chance = np.random.default_rng(0)
    for policy in (lambda frame: STAY, lambda frame: chance.integers(3)):
        returns = [sum(play(PixelCatch(), seed, policy)[0]) for seed in range(100)]
        assert np.mean(returns) < 0


def test_pixel_catch_misses_earn_minus_one() -> None:
    def away_from_ball(frame: np.ndarray[Any, Any]) -> int:
        return LEFT if ball_and_paddle(frame)[1] > 5 else RIGHT

    assert sum(play(PixelCatch(num_drops=3), 0, away_from_ball)[0]) == -3.0


def test_pixel_catch_is_truncated_at_its_step_limit() -> None:
    rewards, terminated, truncated = play(PixelCatch(step_limit=13), 0, towards_ball)
    assert len(rewards) == 13
    assert (terminated, truncated) == (False, True)


def test_pixel_catch_that_ends_at_its_step_limit_is_terminated() -> None:
    assert play(PixelCatch(num_drops=2, step_limit=20), 0, towards_ball)[1:] == (True, False)


def test_the_ball_falls_and_the_paddle_stays_inside_the_screen() -> None:
    env = PixelCatch(num_drops=2)
    frame, _ = env.reset(seed=0)
    assert ball_and_paddle(frame)[0::2] == (0, 5)
    for step in range(1, 10):
        frame = env.step(np.int64(LEFT))[0]
        assert ball_and_paddle(frame)[0::2] == (step, max(5 - step, 1))


def test_pixel_catch_steps_within_fifteen_microseconds() -> None:
    env = make_env("htsrl/PixelCatch-v0", {"num_drops": 10_000}, ())
    env.reset(seed=0)

    def seconds_of_500_steps() -> float:
        start = time.perf_counter()
        for _ in range(500):
            env.step(2)
        return time.perf_counter() - start

    # The best of many short stretches: a busy machine slows most of them, a slow environment all of them.
    assert min(seconds_of_500_steps() for _ in range(20)) / 500 < 15e-6


@pytest.mark.parametrize(
    ("law", "cv", "expected_cv"), [("exponential", 9.0, 1.0), ("gamma", 0.5, 0.5), ("gamma", 2.0, 2.0)]
)
def test_sleeping_times_have_the_mean_and_the_spread_asked_for(law: Any, cv: float, expected_cv: float) -> None:
    env = Sleeping(law=law, mean_seconds=0.01, cv=cv, episode_steps=50_000)
    env.reset(seed=0)
    assert np.mean(env.sleep_seconds) == pytest.approx(0.01, rel=0.05)
    assert np.std(env.sleep_seconds) / np.mean(env.sleep_seconds) == pytest.approx(expected_cv, rel=0.05)


def test_constant_sleeping_times_are_constant() -> None:
    env = Sleeping(law="constant", mean_seconds=0.01)
    env.reset(seed=0)
    assert env.sleep_seconds == [0.01] * 200


def test_sleeping_times_are_a_function_of_the_seed() -> None:
    env, twin = Sleeping(), Sleeping()
    env.reset(seed=1), twin.reset(seed=1)
    assert env.sleep_seconds == twin.sleep_seconds
    twin.reset(seed=2)
    assert env.sleep_seconds != twin.sleep_seconds


def test_each_step_sleeps_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    env = Sleeping(law="gamma", cv=0.7, episode_steps=20)
    env.reset(seed=3)
    for _ in range(20):
        env.step(np.int64(0))
    assert slept == env.sleep_seconds


def test_a_step_really_takes_the_time() -> None:
    env = Sleeping(law="constant", mean_seconds=0.02)
    env.reset(seed=0)
    start = time.perf_counter()
    env.step(np.int64(0))
    assert time.perf_counter() - start >= 0.02


def test_the_law_of_sleep_does_not_change_the_trajectory() -> None:
    laws: list[dict[str, Any]] = [
        {"law": "constant", "mean_seconds": 0.0},
        {"law": "exponential", "mean_seconds": 1e-6},
        {"law": "gamma", "cv": 3.0, "mean_seconds": 1e-6},
    ]
    assert len({str(trajectory(Sleeping(**law), seed=4, actions=[0, 1] * 100)) for law in laws}) == 1


def test_sleeping_rewards_the_sign_of_the_first_number_and_terminates() -> None:
    env = Sleeping(episode_steps=50, mean_seconds=0.0)
    observation, _ = env.reset(seed=0)
    for step in range(1, 51):
        right = int(observation[0] > 0)
        action = right if step % 3 else 1 - right
        observation, reward, terminated, truncated, _ = env.step(np.int64(action))
        assert reward == float(action == right)
        assert (terminated, truncated) == (step == 50, False)


@pytest.mark.parametrize(
    ("env", "env_args"),
    [
        (Sleeping, {"law": "uniform"}),
        (Sleeping, {"mean_seconds": -1.0}),
        (Sleeping, {"mean_seconds": float("nan")}),
        (Sleeping, {"cv": 0.0}),
        (Sleeping, {"episode_steps": 0}),
        (PixelCatch, {"num_drops": 0}),
        (PixelCatch, {"step_limit": 0}),
    ],
)
def test_arguments_that_cannot_work_are_refused_by_name(env: Any, env_args: dict[str, Any]) -> None:
    (name,) = env_args
    with pytest.raises(ConfigError, match=f"^{name}="):
        env(**env_args)


@given(seed=st.integers(0, 2**31 - 1), actions=st.lists(st.integers(0, 3), min_size=9, max_size=9))
def test_tagged_returns_the_documented_numbers(seed: int, actions: list[int]) -> None:
    env = Tagged()
    tag = seed % 2**20
    length = 3 + tag % 7
    observation, _ = env.reset(seed=seed)
    assert observation.tolist() == [tag, 0, 0, -1]
    for step, action in enumerate(actions[:length]):
        observation, reward, terminated, truncated, _ = env.step(np.int64(action))
        assert observation.tolist() == [tag, step + 1, step + 1, action]
        assert reward == 4 * step + action
        ended = step + 1 == length
        assert (terminated, truncated) == (ended and seed % 2 == 0, ended and seed % 2 == 1)
    assert ended


def test_tagged_counts_its_steps_over_all_episodes() -> None:
    env = Tagged()
    for total in (0, 3):
        assert env.reset(seed=7)[0][2] == total
        for _ in range(3):
            env.step(np.int64(0))


def test_tagged_can_forget_the_episodes_before() -> None:
    env = Tagged(count_total_steps=False)
    env.reset(seed=7)
    assert env.step(np.int64(0))[0][2] == 0


def test_tagged_refuses_a_step_outside_an_episode() -> None:
    env = Tagged()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.int64(0))
    env.reset(seed=0)
    for _ in range(3):
        env.step(np.int64(0))
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.int64(0))


def test_tagged_refuses_an_action_outside_its_space() -> None:
    env = Tagged()
    env.reset(seed=0)
    with pytest.raises(gymnasium.error.InvalidAction):
        env.step(np.int64(4))


def test_tagged_without_a_seed_goes_on_from_the_last_one() -> None:
    env, twin = Tagged(), Tagged()
    env.reset(seed=5), twin.reset(seed=5)
    assert env.reset()[0].tolist() == twin.reset()[0].tolist()
    assert env.reset()[0][0] != 5
