"""A batched simulator: points that walk to a target, thousands in one call of NumPy.

htsrl train examples.reach:Reach --lanes 2 --num-envs 2048 --sync-interval 32 --total-steps 2000000

Whatever steps many environments in one call can be a lane: a C library, a GPU kernel, or a few lines of NumPy as here.
All arrays belong to the runtime and are written in place, so what is seen goes straight to where it is learned from.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

MOVES = np.array([[1, 0], [-1, 0], [0, 1], [0, -1]], np.float32) * np.float32(0.1)
NEAR = 0.1
MAX_STEPS = 48


class Reach:
    """A point sees where its target is, relative to itself, and moves in one of four directions."""

    single_observation_space = spaces.Box(-4.0, 4.0, (2,), np.float32)
    single_action_space = spaces.Discrete(len(MOVES))

    def __init__(self, num_envs: int) -> None:
        self._to_target = np.zeros((num_envs, 2), np.float32)
        self._steps = np.zeros(num_envs, np.int64)

    def reset(self, envs: NDArray[np.int64], seeds: NDArray[np.int64], obs: NDArray[np.float32]) -> None:
        """New episodes for some; where a target is follows from its seed alone."""
        self._to_target[envs] = 2 * _uniform(seeds) - 1
        self._steps[envs] = 0
        obs[envs] = self._to_target[envs]

    def step(
        self,
        actions: NDArray[np.int64],
        obs: NDArray[np.float32],
        rewards: NDArray[np.float32],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
    ) -> dict[str, NDArray[Any]]:
        """One step of all; what is returned are numbers to log, `is_success` among them."""
        self._to_target -= MOVES[actions]
        self._steps += 1
        distance = np.abs(self._to_target).max(axis=1)
        obs[...] = self._to_target
        rewards[...] = -distance
        terminated[...] = distance < NEAR
        truncated[...] = self._steps >= MAX_STEPS
        return {"is_success": terminated.astype(np.float64)}

    def save_state(self) -> bytes:
        """All that the next steps depend on: so a lane comes back at once when its process has died."""
        return self._to_target.tobytes() + self._steps.tobytes()

    def restore_state(self, state: bytes) -> None:
        size = self._to_target.nbytes
        self._to_target = np.frombuffer(state[:size], np.float32).reshape(-1, 2).copy()
        self._steps = np.frombuffer(state[size:], np.int64).copy()


def _uniform(seeds: NDArray[np.int64]) -> NDArray[np.float32]:
    """Two numbers from 0 to 1 for each seed: a hash (splitmix64), for a generator each would take long."""
    places = seeds.astype(np.uint64)[:, None] * np.uint64(2) + np.arange(2, dtype=np.uint64)
    mixed: Any = (places + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    top: NDArray[np.float32] = ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(40)).astype(np.float32)
    return top * np.float32(2.0**-24)
