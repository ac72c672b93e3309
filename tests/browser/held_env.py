"""CartPole that stops in the middle of a run, until it is told to continue; one environment of the run is slow."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import gymnasium

from htsrl.seeding import reset_seed

SEED = 1
SLOW_ENV = 11
STEPS_BEFORE = 700  # so many that episodes have ended
steps = itertools.count()
is_held, may_go_on = threading.Event(), threading.Event()
seeds_of_slow_env = {reset_seed(SEED, SLOW_ENV, episode) for episode in range(100)}


class Held(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Knows its place in the run by the seeds that it is reset with."""

    _is_slow = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._is_slow = seed in seeds_of_slow_env
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        if self._is_slow:
            time.sleep(0.01)
        elif next(steps) >= STEPS_BEFORE and not may_go_on.is_set():
            is_held.set()
            may_go_on.wait(timeout=120)
        return super().step(action)


def make() -> Held:
    return Held(gymnasium.make("CartPole-v1", disable_env_checker=True))
