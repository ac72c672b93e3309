"""Whatever an environment returns is looked at before it reaches a storage."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from teams import NUM_AGENTS, Relay

from htsrl.envs.agents import agents_of
from htsrl.envs.contract import check_contract
from htsrl.envs.observing import ObservationGuard
from htsrl.errors import ConfigError
from htsrl.spaces import observation_leaves


def guard(space: spaces.Space[Any]) -> ObservationGuard:
    return ObservationGuard("obs", observation_leaves(space)["obs"])


FLOATS = spaces.Box(-np.inf, np.inf, (2, 3), np.float32)


def test_a_sound_observation_passes_as_it_is() -> None:
    observation = np.ones((2, 3), np.float32)
    assert guard(FLOATS)(observation) is observation


def test_numbers_whose_squares_overflow_are_finite_all_the_same() -> None:
    assert guard(FLOATS)(np.full((2, 3), 3e38, np.float32)).shape == (2, 3)


@pytest.mark.parametrize(
    ("observation", "problem"),
    [
        (np.ones((3, 2), np.float32), r"shape \(3, 2\), its space has \(2, 3\)"),
        (np.ones((1, 3), np.float32), r"shape \(1, 3\)"),  # NumPy would stretch it
        (np.ones((2, 3), np.float64), "dtype float64, its space has float32"),
        (np.array([[1, 2, np.nan], [4, 5, 6]], np.float32), "not finite"),
        (np.array([[1, 2, 3], [4, 5, -np.inf]], np.float32), "not finite"),
    ],
)
def test_an_observation_that_must_not_be_stored_is_refused(observation: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        guard(FLOATS)(observation)


@pytest.mark.parametrize("category", [3, np.int64(3), np.int32(3), np.array(3, np.uint8)])
def test_a_category_may_be_any_integer(category: Any) -> None:
    assert guard(spaces.Discrete(5))(category) == 3


def test_a_category_may_not_be_a_float() -> None:
    with pytest.raises(ValueError, match="dtype float64"):
        guard(spaces.Discrete(5))(3.0)


class Wrong(Relay):
    """A team that breaks one rule."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self._fault = fault

    def step(self, action: Any) -> Any:
        seen, rewards, terminated, truncated, info = super().step(action)
        if self._fault == "rewards":
            rewards = rewards[:2]
        if self._fault == "nan reward":
            rewards[1] = np.nan
        if self._fault == "nan":
            seen[2, 0] = np.nan
        if self._fault == "leaves":
            self.active = np.array([True, True, False])
        if self._fault == "stays":
            terminated[1] = True
        if self._fault == "active":
            self.active = np.ones(2, np.bool_)
        return seen, rewards, terminated, truncated, info


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("rewards", r"rewards has shape \(2,\); 3 agents need \(3,\)"),
        ("nan reward", "not all finite"),
        ("nan", "the observation is not finite"),
        ("leaves", r"agents \[2\] are not active any more, yet neither terminated nor truncated"),
        ("stays", r"agents \[1\] have ended, yet are still active"),
        ("active", r"active has shape \(2,\)"),
    ],
)
def test_a_team_that_breaks_a_rule_is_refused_before_anything_starts(fault: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        check_contract(Wrong(fault))


def test_a_sound_team_keeps_the_contract() -> None:
    check_contract(Relay())


def test_agents_that_are_gone_are_seen_as_zeros() -> None:
    agents = agents_of(Relay(garbage=7.0))
    seen = np.empty((NUM_AGENTS, 4), np.float32)
    agents.reset(0, {"obs": seen})
    for _ in range(6):
        agents.step(np.zeros(NUM_AGENTS, np.int64), {"obs": seen})
    assert agents.active.tolist() == [False, True, True]
    assert not seen[0].any()
    assert seen[1:].any()


def test_the_reward_of_an_agent_that_is_gone_may_be_nan() -> None:
    agents, seen = agents_of(Relay(garbage=np.nan)), np.empty((NUM_AGENTS, 4), np.float32)
    agents.reset(0, {"obs": seen})
    outcomes = [agents.step(np.zeros(NUM_AGENTS, np.int64), {"obs": seen}) for _ in range(6)]
    assert outcomes[-1].rewards[0] == 0.0


def test_an_environment_that_writes_its_own_observation_is_given_the_place() -> None:
    class Writer(gymnasium.Env[Any, Any]):
        observation_space = spaces.Box(0, 255, (2,), np.uint8)
        action_space = spaces.Discrete(2)

        def reset_into(self, observation: Any, *, seed: int) -> dict[str, Any]:
            observation[:] = seed
            return {}

        def step_into(self, action: int, observation: Any) -> tuple[float, bool, bool, dict[str, Any]]:
            observation[:] = action
            return 1.5, False, True, {}

    agents, place = agents_of(Writer()), np.zeros(2, np.uint8)
    agents.reset(9, {"obs": place})
    assert place.tolist() == [9, 9]
    outcome = agents.step(1, {"obs": place})
    assert place.tolist() == [1, 1]
    assert (outcome.rewards, outcome.over, outcome.cut) == (1.5, True, True)
