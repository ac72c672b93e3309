"""How fast an environment steps, for those who share out cores."""

from __future__ import annotations

import statistics
import time
from typing import Any, Literal

import gymnasium

from htsrl.envs.random_play import random_play

TIMED_STEPS = 16
LONGEST_LOOK_SECONDS = 0.25
NETWORK_SECONDS = {"images": 1e-3, "vectors": 4e-5}
"""About what networks take for a step of inference and learning, by what they see. Where the environment takes longer,
a second process for environments is worth more than larger batches and a core for the learner."""


def is_slow(env: gymnasium.Env[Any, Any], sees: Literal["images", "vectors"]) -> bool:
    """Whether its steps take longer than its networks; what cannot be played is left to the run to complain of."""
    seconds: list[float] = []
    begin = last = time.perf_counter()
    was_step = False
    try:
        for call in random_play(env, TIMED_STEPS):
            now = time.perf_counter()
            if was_step:
                seconds.append(now - last)
            if now - begin > LONGEST_LOOK_SECONDS and seconds:
                break
            was_step, last = call.startswith("step"), time.perf_counter()
    except Exception:
        return False
    return statistics.median(seconds) >= NETWORK_SECONDS[sees]
