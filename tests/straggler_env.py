"""CartPole of which one of the environments, by its place in the run, takes longer to step."""

from __future__ import annotations

import time
from typing import Any

import gymnasium

from htsrl.seeding import reset_seed

MAX_EPISODES = 200


class Straggler(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Knows its place by the seeds that it is reset with."""

    def __init__(self, slow_env: int, seconds: float, seed: int = 1) -> None:
        super().__init__(gymnasium.make("CartPole-v1", max_episode_steps=10))
        self._seeds_of_slow_env = {reset_seed(seed, slow_env, episode) for episode in range(MAX_EPISODES)}
        self._seconds = seconds
        self._is_slow = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._is_slow = seed in self._seeds_of_slow_env
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        if self._is_slow:
            time.sleep(self._seconds)
        return super().step(action)
