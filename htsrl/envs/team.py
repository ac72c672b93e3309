"""Teams: several agents in one environment that share one policy, each a row of the batch."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

Info = dict[str, Any]
Flags = NDArray[np.bool_]
TeamStep = tuple[NDArray[Any], NDArray[np.floating[Any]], Flags, Flags, Info]


class Team(gymnasium.Env[NDArray[Any], NDArray[Any]]):
    """An environment in which `num_agents` act at once; `observation_space` and `action_space` are those of one.

    `reset` returns observations and `step` takes actions with a row per agent, always in the same order. An agent may
    end before the others: from the step that ends it on it is not `active`, its rows are ignored and nothing is
    learned from them, until the environment makes it active again. The episode ends when no agent is active.
    """

    num_agents: int
    active: Flags
    """The agents that take part in the next step; set by `reset` and `step`."""

    @abstractmethod
    def step(self, action: NDArray[Any]) -> TeamStep:  # type: ignore[override]  # rewards and ends are per agent
        """Let every active agent act; returns observations, rewards, who terminated, who was truncated, and info."""


def team_size_of(env: gymnasium.Env[Any, Any]) -> int | None:
    """How many agents the environment's team has; None where it has no team."""
    return env.unwrapped.num_agents if isinstance(env.unwrapped, Team) else None
