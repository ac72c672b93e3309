"""The agents of one environment, as rows of a storage; whatever the environment returns is checked on its way there."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
from numpy.typing import NDArray

from htsrl.envs.team import Info, Team
from htsrl.spaces import ObservationLeaf, action_leaf, observation_leaves


class Outcome(NamedTuple):
    """What a step led to; a number each for a single agent, a row each for a team."""

    rewards: Any
    terminated: Any
    truncated: Any
    score: float
    """The reward, or the mean over the team."""
    over: bool
    """The episode has ended for everyone."""
    cut: bool
    """A time limit ended somebody's episode, so the value of what would have followed is wanted."""
    info: Info
    failed: bool = False
    """The environment raised, and was forgiven."""


class Agents(Protocol):
    """One environment and all who act in it."""

    num_agents: int
    is_team: bool

    @property
    def env(self) -> gymnasium.Env[Any, Any]: ...

    @property
    def active(self) -> Any:
        """Who takes part in the next step."""

    def to_env(self, stored: NDArray[Any]) -> Any:
        """Stored actions in the environment's own terms."""

    def reset(self, seed: int, observations: NDArray[Any]) -> Info:
        """Begin an episode; what is seen is written into `observations`."""

    def step(self, action: Any, observations: NDArray[Any]) -> Outcome:
        """Act; what is seen is written into `observations`."""

    def look_again(self) -> None:
        """Find out who is active, after the environment was changed from outside."""

    def close(self) -> None: ...


def agents_of(env: gymnasium.Env[Any, Any]) -> Agents:
    return TeamMates(env) if isinstance(env.unwrapped, Team) else SingleAgent(env)


class SingleAgent:
    """One agent; an environment that can write its observation where it is told to (`step_into`) does so."""

    num_agents = 1
    is_team = False
    active = True

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self.env: Any = env
        self._writes_itself = _writes_itself(env)
        self._checked = ObservationGuard(observation_leaves(env.observation_space)["obs"])
        self.to_env = action_leaf(env.action_space).to_env

    def reset(self, seed: int, observations: NDArray[Any]) -> Info:
        if self._writes_itself:
            return self.env.reset_into(observations, seed=seed)  # type: ignore[no-any-return]
        observation, info = self.env.reset(seed=seed)
        observations[...] = self._checked(observation)
        return info  # type: ignore[no-any-return]

    def step(self, action: Any, observations: NDArray[Any]) -> Outcome:
        if self._writes_itself:
            reward, terminated, truncated, info = self.env.step_into(action, observations)
        else:
            observation, reward, terminated, truncated, info = self.env.step(action)
            observations[...] = self._checked(observation)
        if not math.isfinite(reward):
            raise ValueError(f"the reward is {reward}, which is not finite")
        ended, reward = bool(terminated), float(reward)
        cut = bool(truncated) and not ended
        return Outcome(reward, ended, bool(truncated), reward, ended or cut, cut, info)

    def look_again(self) -> None:
        pass  # the only one is always active

    def close(self) -> None:
        self.env.close()


class TeamMates:
    """The agents of a `Team`; for those that are not active, the rows hold the least that a network can take."""

    is_team = True

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        assert isinstance(env.unwrapped, Team)
        self.env: Any = env
        self._team = env.unwrapped
        self._writes_itself = _writes_itself(env)
        leaf = observation_leaves(env.observation_space)["obs"]
        self._checked = ObservationGuard(leaf)
        self._blank = leaf.start
        self._to_env = action_leaf(env.action_space).to_env
        self.num_agents = env.unwrapped.num_agents
        self.active = np.zeros(self.num_agents, np.bool_)

    def to_env(self, stored: NDArray[Any]) -> NDArray[Any]:
        return np.array([self._to_env(action) for action in stored])

    def reset(self, seed: int, observations: NDArray[Any]) -> Info:
        if self._writes_itself:
            seen, info = observations, self.env.reset_into(observations, seed=seed)
        else:
            seen, info = self.env.reset(seed=seed)
        self.look_again()
        if not self.active.any():
            raise ValueError("no agent is active after a reset; an episode needs one")
        self._write(seen, self.active, observations)
        return info  # type: ignore[no-any-return]

    def step(self, action: NDArray[Any], observations: NDArray[Any]) -> Outcome:
        if self._writes_itself:
            seen, (rewards, terminated, truncated, info) = observations, self.env.step_into(action, observations)
        else:
            seen, rewards, terminated, truncated, info = self.env.step(action)
        rewards = self._row_per_agent("rewards", rewards, np.float64)
        terminated = self._row_per_agent("terminated", terminated, np.bool_)
        truncated = self._row_per_agent("truncated", truncated, np.bool_)
        acted = self.active
        self.look_again()
        rewards, terminated, truncated = np.where(acted, rewards, 0.0), terminated & acted, truncated & acted
        if not np.isfinite(rewards).all():
            raise ValueError(f"the rewards are {rewards}, which are not all finite")
        self._check_ends(acted, terminated | truncated)
        self._write(seen, acted | self.active, observations)
        cut = bool((truncated & ~terminated).any())
        return Outcome(rewards, terminated, truncated, float(rewards.mean()), not self.active.any(), cut, info)

    def look_again(self) -> None:
        self.active = self._row_per_agent("active", self._team.active, np.bool_)

    def close(self) -> None:
        self.env.close()

    def _check_ends(self, acted: NDArray[np.bool_], ended: NDArray[np.bool_]) -> None:
        """Who has ended is not active, and who is not active any more has ended."""
        if (left := acted & ~self.active & ~ended).any():
            agents = np.flatnonzero(left)
            raise ValueError(f"agents {agents} are not active any more, yet neither terminated nor truncated")
        if (stayed := acted & self.active & ended).any():
            agents = np.flatnonzero(stayed)
            raise ValueError(f"agents {agents} have ended, yet are still active; set active to False for them")

    def _write(self, seen: Any, present: NDArray[np.bool_], observations: NDArray[Any]) -> None:
        for agent in range(self.num_agents):
            if not present[agent]:
                observations[agent] = self._blank
            elif seen is not observations:
                observations[agent] = self._checked(seen[agent])

    def _row_per_agent(self, name: str, values: Any, dtype: Any) -> NDArray[Any]:
        array = np.array(values, dtype)
        if array.shape != (self.num_agents,):
            raise ValueError(f"{name} has shape {array.shape}; {self.num_agents} agents need ({self.num_agents},)")
        return array


def _writes_itself(env: object) -> bool:
    return hasattr(env, "step_into") and hasattr(env, "reset_into")


class ObservationGuard:
    """Lets through what may be stored: NumPy would stretch a wrong shape and cut a wrong type without a word."""

    def __init__(self, leaf: ObservationLeaf) -> None:
        self._shape = leaf.shape
        self._dtype = np.dtype(leaf.dtype)
        self._is_float = self._dtype.kind == "f"
        self._is_category = leaf.num_categories is not None

    def __call__(self, observation: Any) -> NDArray[Any]:
        array = np.asarray(observation)
        if array.shape != self._shape:
            raise ValueError(f"the observation has shape {array.shape}, its space has {self._shape}")
        if array.dtype != self._dtype and not (self._is_category and array.dtype.kind in "iu"):
            raise ValueError(f"the observation has dtype {array.dtype}, its space has {self._dtype}")
        # One number that is not finite makes the sum of squares so; large ones can too, hence the second look.
        if self._is_float and not math.isfinite(np.vdot(array, array)) and not np.isfinite(array).all():
            raise ValueError(f"the observation is not finite: {array}")
        return array
