"""Lanes whose every number is known beforehand."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

LENGTHS = (3, 4, 5)
"""Of the episodes of environments 0, 1 and 2; the second is cut by a time limit, the others terminate."""


class Counting:
    """An observation is (episode seed, step of the episode); episode lengths follow from the environment's place."""

    single_observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    single_action_space = spaces.Discrete(2)

    def __init__(self, num_envs: int, lengths: tuple[int, ...] = LENGTHS) -> None:
        self._lengths = np.resize(np.array(lengths), num_envs)
        self._seen = np.zeros((num_envs, 2), np.float32)

    def reset(self, envs: NDArray[Any], seeds: NDArray[Any], obs: NDArray[Any]) -> None:
        self._seen[envs, 0] = seeds % 1000
        self._seen[envs, 1] = 0
        obs[envs] = self._seen[envs]

    def step(
        self,
        actions: NDArray[Any],
        obs: NDArray[Any],
        rewards: NDArray[Any],
        terminated: NDArray[Any],
        truncated: NDArray[Any],
    ) -> dict[str, NDArray[Any]]:
        self._seen[:, 1] += 1
        obs[...] = self._seen
        rewards[...] = self._seen[:, 1] + actions
        over, is_cut = self._seen[:, 1] >= self._lengths, self._lengths % 2 == 0
        terminated[...] = over & ~is_cut
        truncated[...] = over & is_cut
        return {"is_success": over.astype(np.float64), "steps": self._seen[:, 1].copy()}


class Saving(Counting):
    """The same with a state."""

    def save_state(self) -> bytes:
        return self._seen.tobytes()

    def restore_state(self, state: bytes) -> None:
        self._seen = np.frombuffer(state, np.float32).reshape(-1, 2).copy()


class CountingVector(VectorEnv[Any, Any, Any]):
    """The same as a vector environment of Gymnasium, in any autoreset mode; a first observation is (episode, 0)."""

    def __init__(self, num_envs: int, mode: str = "NextStep", gives_finals: bool = True) -> None:
        self.metadata = {"autoreset_mode": AutoresetMode(mode)}
        self.num_envs = num_envs
        self.single_observation_space = Counting.single_observation_space
        self.single_action_space = Counting.single_action_space
        self.lengths = np.resize(np.array(LENGTHS), num_envs)
        self.mode = mode
        self.gives_finals = gives_finals
        self.seen = np.zeros((num_envs, 2), np.float32)
        self.over = np.zeros(num_envs, np.bool_)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_))
        self._begin(mask)
        if options is None:
            self.seen[:, 0] = 0
        return self.seen.copy(), {}

    def step(self, actions: Any) -> Any:
        begins = self.over & (self.mode == "NextStep")
        self.seen[~begins, 1] += 1
        self._begin(begins)
        rewards = np.where(begins, 0.0, self.seen[:, 1])
        over, is_cut = (self.seen[:, 1] >= self.lengths) & ~begins, self.lengths % 2 == 0
        info = {}
        if self.mode == "SameStep" and over.any():
            if self.gives_finals:
                info = {"final_obs": self.seen.copy(), "_final_obs": over.copy()}
            self._begin(over)
        self.over = over
        return self.seen.copy(), rewards, over & ~is_cut, over & is_cut, info

    def _begin(self, which: NDArray[np.bool_]) -> None:
        self.seen[which, 0] += 1
        self.seen[which, 1] = 0
        self.over[which] = False


class WrongShape(Counting):
    def step(self, actions: Any, obs: Any, rewards: Any, terminated: Any, truncated: Any) -> Any:
        super().step(actions, obs, rewards, terminated, truncated)
        return {"is_success": np.zeros(7)}


class NotFinite(Counting):
    def step(self, actions: Any, obs: Any, rewards: Any, terminated: Any, truncated: Any) -> Any:
        info = super().step(actions, obs, rewards, terminated, truncated)
        obs[1, 0] = np.nan
        return info


class WrongDtype(CountingVector):
    def step(self, actions: Any) -> Any:
        seen, *rest = super().step(actions)
        return (seen.astype(np.float64), *rest)


class WrongCount(CountingVector):
    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs + 1)


class Forgetful(Saving):
    """Leaves a part of its state behind."""

    def save_state(self) -> bytes:
        return np.zeros_like(self._seen).tobytes()


class OddRewards(CountingVector):
    def step(self, actions: Any) -> Any:
        seen, rewards, *rest = super().step(actions)
        return (seen, rewards[:-1], *rest)


class Random(Counting):
    """Draws from a generator that no seed has set."""

    def step(self, actions: Any, obs: Any, rewards: Any, terminated: Any, truncated: Any) -> Any:
        info = super().step(actions, obs, rewards, terminated, truncated)
        rewards += np.random.default_rng().random(len(rewards)).astype(np.float32)
        return info
