"""A note that is read once, and doors that open once."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from htsrl.envs.puzzles.arguments import require

Info = dict[str, Any]
Observation = dict[str, Any]

WAIT = 0
NO_NOTE = 0


class Memoir(gymnasium.Env[Observation, np.int64]):
    """A note names the right one of `num_doors` doors; each opens for one step, and only then can it be taken.

    Observation: "note", the right door's number from 1 in the first observation, 0 in all others; "clock", the share of
    `length` steps that is over; "action_mask". Action: 0 waits, which is always legal; door d (from 1) is legal at one
    step other than the first, drawn for each door by itself. Reward: 1 for the right door, 0 for another and for
    waiting, -1 for one that is closed. Every door terminates the episode, open or not, and so does step `length`. Best:
    1, with memory and mask. Without memory 1 / num_doors (0.25): masks and doors are drawn independently. With memory
    but without the mask 0, by waiting: the door would be open with a chance of 1 / (length - 1). Chance among the
    legal: 0.23.
    """

    def __init__(self, num_doors: int = 4, length: int = 10) -> None:
        require(num_doors >= 2, f"num_doors={num_doors} must be at least 2, or there is nothing to remember")
        require(length >= 3, f"length={length} must be at least 3, or it is known when the doors open")
        self.observation_space = spaces.Dict(
            {
                "note": spaces.Discrete(num_doors + 1),
                "clock": spaces.Box(0.0, 1.0, (1,), np.float32),
                "action_mask": spaces.MultiBinary(num_doors + 1),
            }
        )
        self.action_space = spaces.Discrete(num_doors + 1)
        self._num_doors = num_doors
        self._length = length

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Observation, Info]:
        super().reset(seed=seed)
        self._right_door = 1 + int(self.np_random.integers(self._num_doors))
        self._opens_at = self.np_random.integers(1, self._length, size=self._num_doors)
        self._steps = 0
        return self._observation(note=self._right_door), {}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, Info]:
        chosen = int(action)
        reward = 0.0
        if chosen != WAIT:
            is_open = self._opens_at[chosen - 1] == self._steps
            reward = float(chosen == self._right_door) if is_open else -1.0
        self._steps += 1
        return self._observation(note=NO_NOTE), reward, chosen != WAIT or self._steps == self._length, False, {}

    def _observation(self, note: int) -> Observation:
        mask = np.ones(self._num_doors + 1, np.int8)
        mask[1:] = self._opens_at == self._steps
        return {
            "note": np.int64(note),
            "clock": np.array([self._steps / self._length], np.float32),
            "action_mask": mask,
        }
