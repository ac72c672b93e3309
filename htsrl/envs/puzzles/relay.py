"""Three runners in shifts, each with a baton to remember."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from htsrl.envs.puzzles.arguments import require
from htsrl.envs.team import Info, Team, TeamStep

HOLD = 0
NO_BATON = 0
NUM_OFFERED = 2
LENGTH = 12
SHIFTS = (((0, 4), (8, 12)), ((0, 8),), ((2, 12),))
"""First step and step after the last of every shift, by role; at each step somebody is on duty."""
TRUNCATED_ROLE = 1
"""The runner who is called away in mid-run, while others finish their shifts."""


class Relay(Team):
    """Three agents run in shifts; each gets a baton when its shift begins, and should name its colour whenever it may.

    Observation of an agent: "baton", its colour's number from 1 at the first step of a shift, else 0; "clock", the
    share of the 12 steps that is over; "action_mask". Action: 0 holds, which is always legal; c names colour c, of
    which two, drawn for each agent and step, are legal. Reward of an agent: 1 for naming its colour when that is legal
    and for holding when it is not; -1 for an illegal colour; else 0. Who runs which shifts is drawn at the reset: one
    the steps 0 to 3 and 8 to 11, one 0 to 7 (truncated: it is called away), one 2 to 11; shifts else terminate. Best:
    26 for the team. Without memory an agent knows its colour only at the first step of a shift and had better hold from
    then on (naming an offered colour is right with a chance of 1 / num_colours, holding of 1 - 2 / num_colours): 15
    with four colours. Chance among the legal: 26 / 3, as one of three is right.
    """

    def __init__(self, num_colours: int = 4) -> None:
        require(num_colours > NUM_OFFERED, f"num_colours={num_colours} must be above {NUM_OFFERED}, the number offered")
        self.num_agents = len(SHIFTS)
        self.observation_space: spaces.Space[Any] = spaces.Dict(
            {
                "baton": spaces.Discrete(num_colours + 1),
                "clock": spaces.Box(0.0, 1.0, (1,), np.float32),
                "action_mask": spaces.MultiBinary(num_colours + 1),
            }
        )
        self.action_space: spaces.Space[Any] = spaces.Discrete(num_colours + 1)
        self.active = np.zeros(self.num_agents, np.bool_)
        self._num_colours = num_colours

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self._roles = self.np_random.permutation(self.num_agents)
        self._colours = np.zeros(self.num_agents, np.int64)
        self._steps = 0
        return self._begin_step(), {}

    def step(self, action: NDArray[Any]) -> TeamStep:  # type: ignore[override]
        rewards = np.array([self._reward(agent, int(action[agent])) for agent in range(self.num_agents)])
        self._steps += 1
        ended = self.active & ~self._on_duty()
        truncated = ended & (self._roles == TRUNCATED_ROLE)
        return self._begin_step(), rewards, ended & ~truncated, truncated, {}

    def _reward(self, agent: int, named: int) -> float:
        if not self.active[agent]:
            return 0.0
        if not self._masks[agent, named]:
            return -1.0
        colour = self._colours[agent]
        return float(named == (colour if self._masks[agent, colour] else HOLD))

    def _begin_step(self) -> Any:
        """Change shifts, hand out batons and draw masks; returns what each agent sees."""
        self.active = self._on_duty()
        fresh = np.array([any(self._steps == start for start, _ in SHIFTS[role]) for role in self._roles])
        drawn = self.np_random.integers(1, self._num_colours + 1, size=self.num_agents)
        self._colours = np.where(fresh, drawn, self._colours)
        self._masks = np.zeros((self.num_agents, self._num_colours + 1), np.int8)
        self._masks[:, HOLD] = 1
        for mask in self._masks:
            mask[1 + self.np_random.permutation(self._num_colours)[:NUM_OFFERED]] = 1
        return [
            {
                "baton": np.int64(self._colours[agent] if fresh[agent] else NO_BATON),
                "clock": np.array([self._steps / LENGTH], np.float32),
                "action_mask": self._masks[agent].copy(),
            }
            for agent in range(self.num_agents)
        ]

    def _on_duty(self) -> NDArray[np.bool_]:
        return np.array([any(start <= self._steps < end for start, end in SHIFTS[role]) for role in self._roles])
