"""A team whose agents come and go by a fixed plan, and whose every number says where it belongs."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from htsrl.envs.team import Flags, Info, Team, TeamStep

NUM_AGENTS = 3
LAST_STEP = 11
TERMINATES = {0: 4}
"""Agent 0 is out for good after its step 4."""
TRUNCATED = {1: 6}
"""Agent 1's time is up after step 6, while agent 2 continues, and ..."""
RETURNS = {1: 9}
"""... from step 9 on it takes part again."""


class Relay(Team):
    """Observation: (agent, step of the episode, last action, seed's parity), scaled down; reward: its own number."""

    def __init__(self, garbage: float = 0.0, ends_by_time: bool = True) -> None:
        self.num_agents = NUM_AGENTS
        self.observation_space = spaces.Box(-1e6, 1e6, (4,), np.float32)
        self.action_space: spaces.Space[Any] = spaces.Discrete(3)
        self._garbage = garbage
        self._ends_by_time = ends_by_time

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self._parity = 0 if seed is None else seed % 2
        self._steps = 0
        self.active = np.ones(NUM_AGENTS, np.bool_)
        return self._observations(np.zeros(NUM_AGENTS), self.active), {}

    def step(self, action: Any) -> TeamStep:  # type: ignore[override]
        acted, step = self.active.copy(), self._steps
        self._steps += 1
        over = step == LAST_STEP
        terminated = np.array(
            [TERMINATES.get(i) == step or (over and not self._ends_by_time) for i in range(NUM_AGENTS)]
        )
        truncated = np.array([TRUNCATED.get(i) == step or (over and self._ends_by_time) for i in range(NUM_AGENTS)])
        back = np.array([RETURNS.get(i) == self._steps for i in range(NUM_AGENTS)])
        self.active = ((acted & ~terminated & ~truncated) | back) & (not over)
        rewards = np.where(acted, np.arange(NUM_AGENTS) + step / 16 + self._parity / 2, self._garbage)
        return self._observations(action, acted | self.active), rewards, terminated, truncated, {}

    def _observations(self, actions: Any, present: Flags) -> Any:
        rows = [[i, self._steps, actions[i], self._parity] for i in range(NUM_AGENTS)]
        return np.where(present[:, None], np.array(rows, np.float32) / 16, np.float32(self._garbage))


class Loner(Team):
    """A team of one, who sees one of three categories, numbered from 1."""

    def __init__(self) -> None:
        self.num_agents = 1
        self.observation_space: spaces.Space[Any] = spaces.Discrete(3, start=1)
        self.action_space: spaces.Space[Any] = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self._steps = 0
        self.active = np.array([True])
        return np.array([1]), {}

    def step(self, action: Any) -> TeamStep:  # type: ignore[override]
        self._steps += 1
        ends = np.array([self._steps == 7])
        self.active = ~ends
        return np.array([self._steps % 3 + 1]), np.array([float(action[0])]), ends, np.array([False]), {}


class Pair(Loner):
    """Two of them; the first leaves early, and what it no longer sees is still a category."""

    def __init__(self) -> None:
        super().__init__()
        self.num_agents = 2

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self.active = np.array([True, True])
        return np.array([1, 2]), {}

    def step(self, action: Any) -> TeamStep:  # type: ignore[override]
        self._steps += 1
        ends = self.active & np.array([self._steps == 3, self._steps == 7])
        self.active = self.active & ~ends
        return np.array([1, 2]), np.ones(2), ends, np.array([False, False]), {}


gymnasium.register(id="Relay-v0", entry_point=f"{__name__}:Relay", order_enforce=False, disable_env_checker=True)
