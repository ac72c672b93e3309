"""CartPole without its velocities."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from numpy.typing import NDArray

from htsrl.envs.puzzles.arguments import require

Info = dict[str, Any]
Float32 = NDArray[np.float32]

SHOWN = [0, 2]
"""Cart position and pole angle, of (position, velocity, angle, angular velocity)."""


class HiddenCartPole(gymnasium.Env[Float32, np.int64]):
    """CartPole-v1 with the velocities hidden: two positions at a time do not say which way anything moves.

    Observation: cart position and pole angle. Action: 0 pushes left, 1 right. Reward: 1 a step. The episode
    terminates when the cart leaves the track or the pole leans too far, and is truncated after `step_limit` steps.
    Best: 500, by remembering the last observation, from which the velocities follow. The best memoryless policies that
    a search found (the further the pole leans, the likelier a push that way) last 52 steps on average, chance 22.
    """

    def __init__(self, step_limit: int = 500) -> None:
        require(step_limit >= 1, f"step_limit={step_limit} must be at least 1")
        self._cartpole: gymnasium.Env[Any, Any] = CartPoleEnv()
        bounds = self._cartpole.observation_space
        assert isinstance(bounds, spaces.Box)
        self.observation_space = spaces.Box(bounds.low[SHOWN], bounds.high[SHOWN], dtype=np.float32)
        self.action_space = spaces.Discrete(2)
        self._step_limit = step_limit

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Float32, Info]:
        super().reset(seed=seed)
        state, _ = self._cartpole.reset(seed=seed, options=options)
        self._steps = 0
        return state[SHOWN], {}

    def step(self, action: np.int64) -> tuple[Float32, float, bool, bool, Info]:
        state, reward, terminated, _, _ = self._cartpole.step(int(action))
        self._steps += 1
        truncated = self._steps == self._step_limit and not terminated
        return state[SHOWN], float(reward), terminated, truncated, {}
