"""Puzzles are proper environments: functions of seed and actions, of which something is always legal."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import htsrl.envs.puzzles  # noqa: F401  (registers them)
from htsrl.envs.puzzles.crane import Crane
from htsrl.envs.puzzles.hidden_cartpole import HiddenCartPole
from htsrl.envs.puzzles.lock import Lock
from htsrl.envs.puzzles.memoir import Memoir
from htsrl.envs.puzzles.recall import Recall
from htsrl.envs.puzzles.relay import Relay
from htsrl.errors import ConfigError

SINGLES: list[tuple[str, dict[str, Any]]] = [
    ("htsrl/HiddenCartPole-v0", {}),
    ("htsrl/Recall-v0", {}),
    ("htsrl/Recall-v0", {"num_cues": 2, "delay": 0}),
    ("htsrl/Lock-v0", {}),
    ("htsrl/Lock-v0", {"mask_in": "info"}),
    ("htsrl/Lock-v0", {"mask_in": "nowhere"}),
    ("htsrl/Crane-v0", {}),
    ("htsrl/Memoir-v0", {}),
]
ALL = [*SINGLES, ("htsrl/Relay-v0", {})]


def make(env_id: str, env_args: dict[str, Any]) -> Any:
    return gymnasium.make(env_id, disable_env_checker=True, **env_args).unwrapped


def choose(space: gymnasium.Space[Any], observation: Any, info: dict[str, Any]) -> Any:
    """Any action, or any that is legal where there is a mask."""
    if isinstance(observation, list):
        return np.array([choose(space, view, info) for view in observation])
    shown = observation if isinstance(observation, dict) else info
    return space.sample(mask=shown["action_mask"]) if "action_mask" in shown else space.sample()


def is_over(env: Any, terminated: Any, truncated: Any) -> bool:
    return not env.active.any() if isinstance(env, Relay) else terminated or truncated


def leaves(value: Any, name: str = "") -> dict[str, bytes]:
    """Every array of a nested value by its path."""
    if isinstance(value, dict):
        return {path: leaf for key in value for path, leaf in leaves(value[key], f"{name}/{key}").items()}
    if isinstance(value, list | tuple):
        return {path: leaf for i, item in enumerate(value) for path, leaf in leaves(item, f"{name}/{i}").items()}
    return {name: np.asarray(value).tobytes()}


def spoil(value: Any) -> None:
    """Overwrite every array in place."""
    if isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            spoil(item)
    elif isinstance(value, np.ndarray):
        value[...] = 0


def trajectory(env: Any, seed: int, num_steps: int = 120, spoils: bool = False) -> list[dict[str, bytes]]:
    """All that is returned over as many episodes as fit; the actions are drawn from the same numbers every time."""
    space = copy.deepcopy(env.action_space)
    space.seed(3)
    observation, info = env.reset(seed=seed)
    returned = [leaves((observation, info))]
    for step in range(num_steps):
        action = choose(space, observation, info)
        if spoils:
            spoil((observation, info))
        observation, rewards, terminated, truncated, info = env.step(action)
        returned.append(leaves((observation, rewards, terminated, truncated, info)))
        if is_over(env, terminated, truncated):
            observation, info = env.reset(seed=seed + step + 1)
            returned.append(leaves((observation, info)))
    return returned


@pytest.mark.parametrize(("env_id", "env_args"), SINGLES)
def test_gymnasiums_checker_has_nothing_to_say(env_id: str, env_args: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(env_id, env_args))


@pytest.mark.parametrize(("env_id", "env_args"), ALL)
def test_episodes_are_functions_of_seed_and_actions_whatever_came_before(env_id: str, env_args: dict[str, Any]) -> None:
    fresh, used = make(env_id, env_args), make(env_id, env_args)
    trajectory(used, seed=99, num_steps=3)
    assert trajectory(fresh, seed=7) == trajectory(used, seed=7)
    assert trajectory(fresh, seed=8) != trajectory(used, seed=7)


@pytest.mark.parametrize(("env_id", "env_args"), ALL)
def test_writing_into_what_was_returned_does_not_change_the_episode(env_id: str, env_args: dict[str, Any]) -> None:
    assert trajectory(make(env_id, env_args), seed=1, spoils=True) == trajectory(make(env_id, env_args), seed=1)


@pytest.mark.parametrize(("env_id", "env_args"), ALL)
def test_every_part_of_an_observation_changes_over_time(env_id: str, env_args: dict[str, Any]) -> None:
    seen = trajectory(make(env_id, env_args), seed=0)
    for path in seen[0]:
        # The tuple's first element is the observation, and where a reset returns its info a step returns its reward.
        if path.startswith("/0"):
            assert len({step[path] for step in seen}) > 1, path


@pytest.mark.parametrize("env_id", ["htsrl/Lock-v0", "htsrl/Memoir-v0", "htsrl/Relay-v0"])
def test_something_is_always_legal(env_id: str) -> None:
    env = make(env_id, {})
    env.action_space.seed(0)
    for seed in range(30):
        observation, _ = env.reset(seed=seed)
        over = False
        while not over:
            for view in observation if isinstance(observation, list) else [observation]:
                assert env.observation_space.contains(view)
                assert view["action_mask"].any()
            observation, _, terminated, truncated, _ = env.step(choose(env.action_space, observation, {}))
            over = is_over(env, terminated, truncated)


@pytest.mark.parametrize(
    ("env", "env_args"),
    [
        (HiddenCartPole, {"step_limit": 0}),
        (Recall, {"num_cues": 1}),
        (Recall, {"delay": -1}),
        (Lock, {"num_colours": 1}),
        (Lock, {"num_actions": 63}),
        (Lock, {"num_actions": 4}),
        (Lock, {"length": 0}),
        (Lock, {"mask_in": "the mail"}),
        (Crane, {"length": 0}),
        (Memoir, {"num_doors": 1}),
        (Memoir, {"length": 2}),
        (Relay, {"num_colours": 2}),
    ],
)
def test_arguments_that_cannot_work_are_refused_by_name(env: Any, env_args: dict[str, Any]) -> None:
    (name,) = env_args
    with pytest.raises(ConfigError, match=f"^{name}="):
        env(**env_args)
