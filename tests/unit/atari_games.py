"""Games of Atari played by random actions, episode after episode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

PLAIN: dict[str, Any] = {"noop_max": 0, "fire_on_reset": False, "episodic_life": False, "clip_rewards": False}
"""As Gymnasium's wrappers are without options of their own."""

Step = tuple[bytes, float, bool, bool, dict[str, Any]]


def random_actions(env: gymnasium.Env[Any, Any], steps: int, seed: int = 0) -> list[int]:
    assert isinstance(env.action_space, gymnasium.spaces.Discrete)
    return list(map(int, np.random.default_rng(seed).integers(int(env.action_space.n), size=steps)))


def play(env: gymnasium.Env[Any, Any], actions: list[int], first_seed: int | None = 0) -> Iterator[Step]:
    """Every step and, where an episode ends, the reset after it, with the next seed; None continues as it stands."""
    seed = 100 if first_seed is None else first_seed
    if first_seed is not None:
        observation, info = env.reset(seed=seed)
        yield observation.tobytes(), 0.0, False, False, info
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        yield observation.tobytes(), float(reward), terminated, truncated, info
        if terminated or truncated:
            seed += 1
            observation, info = env.reset(seed=seed)
            yield observation.tobytes(), 0.0, False, False, info
