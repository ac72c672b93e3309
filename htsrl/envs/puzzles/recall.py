"""A cue at the start, a question at the end, and nothing between."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from htsrl.envs.puzzles.arguments import require

Info = dict[str, Any]
Float32 = NDArray[np.float32]


class Recall(gymnasium.Env[Float32, np.int64]):
    """One of `num_cues` cues is shown once; `delay` blank observations later, a signal asks which it was.

    Observation: a place for each cue, of which the first observation has one at 1, and a last place, at 1 when the
    answer is due; all else is 0. Action: a cue's number; it matters only as the answer. Reward: 1 for the right
    answer, else 0. The episode terminates with the answer, after `delay` + 2 steps. Best: 1, with memory. A memoryless
    policy sees the same question whatever the cue was: its mean is 1 / num_cues (0.25) at best, and so is chance's.
    """

    def __init__(self, num_cues: int = 4, delay: int = 50) -> None:
        require(num_cues >= 2, f"num_cues={num_cues} must be at least 2, or there is nothing to remember")
        require(delay >= 0, f"delay={delay} must not be negative")
        self.observation_space = spaces.Box(0.0, 1.0, (num_cues + 1,), np.float32)
        self.action_space = spaces.Discrete(num_cues)
        self._num_cues = num_cues
        self._delay = delay

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Float32, Info]:
        super().reset(seed=seed)
        self._cue = int(self.np_random.integers(self._num_cues))
        self._steps = 0
        return self._observation(lit=self._cue), {}

    def step(self, action: np.int64) -> tuple[Float32, float, bool, bool, Info]:
        is_answer = self._steps == self._delay + 1
        reward = float(is_answer and int(action) == self._cue)
        self._steps += 1
        is_asked = self._steps == self._delay + 1
        return self._observation(lit=self._num_cues if is_asked else None), reward, is_answer, False, {}

    def _observation(self, lit: int | None) -> Float32:
        observation = np.zeros(self._num_cues + 1, np.float32)
        if lit is not None:
            observation[lit] = 1.0
        return observation
