"""The agents of one environment, as rows of a storage; whatever the environment returns is checked on its way there."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from htsrl.envs.observing import ObservationWriter, Rows
from htsrl.envs.team import Info, Team
from htsrl.errors import RuleBroken
from htsrl.spaces import Interface
from htsrl.spaces.observations import MASK_KEY


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
    """The environment raised, and its episode was truncated."""

    @property
    def ended(self) -> bool:
        """Somebody's episode has ended, for whatever reason."""
        return self.over or bool(np.any(self.terminated)) or bool(np.any(self.truncated))


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

    def reset(self, seed: int, rows: Rows) -> Info:
        """Begin an episode; what is seen is written into `rows`."""

    def step(self, action: Any, rows: Rows) -> Outcome:
        """Act; what is seen is written into `rows`."""

    def look_again(self) -> None:
        """Find out who is active, after the environment was changed from outside."""

    def close(self) -> None: ...


def agents_of(env: gymnasium.Env[Any, Any], interface: Interface | None = None) -> Agents:
    """The agents of `env`, with the interface that its spaces tell unless another is given."""
    interface = interface or Interface(env.observation_space, env.action_space)
    return TeamMates(env, interface) if isinstance(env.unwrapped, Team) else SingleAgent(env, interface)


class SingleAgent:
    """One agent; an environment that can write its observation where it is told to (`step_into`) does so."""

    num_agents = 1
    is_team = False
    active = True

    def __init__(self, env: gymnasium.Env[Any, Any], interface: Interface) -> None:
        self.env: Any = env
        self._writes_itself = _writes_itself(env)
        self._writer = ObservationWriter(interface)
        self._has_masks = interface.has_masks
        self.to_env = interface.actions.to_env

    def reset(self, seed: int, rows: Rows) -> Info:
        if self._writes_itself:
            observation, info = None, self.env.reset_into(rows["obs"], seed=seed)
        else:
            observation, info = self.env.reset(seed=seed)
            self._writer.write(observation, rows)
        self._writer.write_mask(observation, info, rows)
        return info  # type: ignore[no-any-return]

    def step(self, action: Any, rows: Rows) -> Outcome:
        if self._writes_itself:
            observation, (reward, terminated, truncated, info) = None, self.env.step_into(action, rows["obs"])
        else:
            observation, reward, terminated, truncated, info = self.env.step(action)
            self._writer.write(observation, rows)
        if self._has_masks:
            self._writer.write_mask(observation, info, rows, is_last=bool(terminated or truncated))
        if not math.isfinite(reward):
            raise RuleBroken(f"the reward is {reward}, which is not finite")
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

    def __init__(self, env: gymnasium.Env[Any, Any], interface: Interface) -> None:
        assert isinstance(env.unwrapped, Team)
        self.env: Any = env
        self._team = env.unwrapped
        self._writes_itself = _writes_itself(env)
        self._writer = ObservationWriter(interface)
        self._blanks = {name: leaf.blank for name, leaf in interface.observations.items()}
        self._masks_in_info = interface.masks_in_info
        self._to_env = interface.actions.to_env
        self._acts_in_parts = isinstance(env.action_space, spaces.Dict | spaces.Tuple)
        self.num_agents = env.unwrapped.num_agents
        self.active = np.zeros(self.num_agents, np.bool_)

    def to_env(self, stored: NDArray[Any]) -> NDArray[Any] | list[Any]:
        actions = [self._to_env(action) for action in stored]
        return actions if self._acts_in_parts else np.array(actions)

    def reset(self, seed: int, rows: Rows) -> Info:
        if self._writes_itself:
            seen, info = None, self.env.reset_into(rows["obs"], seed=seed)
        else:
            seen, info = self.env.reset(seed=seed)
        self.look_again()
        if not self.active.any():
            raise RuleBroken("no agent is active after a reset; an episode needs one")
        self._write(seen, info, self.active, rows)
        return info  # type: ignore[no-any-return]

    def step(self, action: Any, rows: Rows) -> Outcome:
        if self._writes_itself:
            seen, (rewards, terminated, truncated, info) = None, self.env.step_into(action, rows["obs"])
        else:
            seen, rewards, terminated, truncated, info = self.env.step(action)
        rewards = self._row_per_agent("rewards", rewards, np.float64)
        terminated = self._row_per_agent("terminated", terminated, np.bool_)
        truncated = self._row_per_agent("truncated", truncated, np.bool_)
        acted = self.active
        self.look_again()
        rewards, terminated, truncated = np.where(acted, rewards, 0.0), terminated & acted, truncated & acted
        if not np.isfinite(rewards).all():
            raise RuleBroken(f"the rewards are {rewards}, which are not all finite")
        self._check_ends(acted, terminated | truncated)
        self._write(seen, info, acted | self.active, rows)
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
            raise RuleBroken(f"agents {agents} are not active any more, yet neither terminated nor truncated")
        if (stayed := acted & self.active & ended).any():
            agents = np.flatnonzero(stayed)
            raise RuleBroken(f"agents {agents} have ended, yet are still active; set active to False for them")

    def _write(self, seen: Any, info: Info, present: NDArray[np.bool_], rows: Rows) -> None:
        """What those present see; `seen` is None where the environment has written that itself."""
        for agent in range(self.num_agents):
            own_rows = {name: array[agent, ...] for name, array in rows.items()}
            if not present[agent]:
                for name, blank in self._blanks.items():
                    own_rows[name][...] = blank
            else:
                own_info = {MASK_KEY: info[MASK_KEY][agent]} if self._masks_in_info and MASK_KEY in info else {}
                observation = None if seen is None else seen[agent]
                if seen is not None:
                    self._writer.write(observation, own_rows)
                self._writer.write_mask(observation, own_info, own_rows, is_last=not self.active[agent])

    def _row_per_agent(self, name: str, values: Any, dtype: Any) -> NDArray[Any]:
        array = np.array(values, dtype)
        if array.shape != (self.num_agents,):
            raise RuleBroken(f"{name} has shape {array.shape}; {self.num_agents} agents need ({self.num_agents},)")
        return array


def _writes_itself(env: object) -> bool:
    return hasattr(env, "step_into") and hasattr(env, "reset_into")
