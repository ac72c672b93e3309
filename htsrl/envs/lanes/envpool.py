"""Lanes of EnvPool (`pip install 'htsrl[envpool]'`): ids like `envpool/Pong-v5`, K environments in C++ threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.envs.extras import import_simulator
from htsrl.envs.lanes.guard import LaneGuard
from htsrl.envs.lanes.lane import Bools, LaneOutcome, Seeds
from htsrl.envs.observing import Rows
from htsrl.spaces import Interface

PREFIX = "envpool/"


class EnvPoolLane:
    """EnvPool takes its seed when it is made and begins episodes at the next step; its state cannot be saved."""

    idles = True
    seeds_episodes = False

    def __init__(self, task: str, env_args: Mapping[str, Any], num_envs: int) -> None:
        self._make = import_simulator("envpool", extra="envpool").make
        self._task, self._env_args = task, dict(env_args)
        self.num_envs = num_envs
        self.inner: Any = self._made(seed=0)
        self.observation_space, self.action_space = self.inner.observation_space, self.inner.action_space
        self._guard = LaneGuard(Interface(self.observation_space, self.action_space).observations, num_envs)
        self._dtype = self.action_space.dtype

    def reset(self, seeds: Seeds, rows: Rows) -> None:
        self.inner.close()
        self.inner = self._made(seed=int(seeds[0]))
        observation, _ = self.inner.reset()
        self._guard.write(observation, rows)

    def step(self, actions: NDArray[Any], rows: Rows) -> LaneOutcome:
        observation, rewards, terminated, truncated, info = self.inner.step(np.ascontiguousarray(actions))
        numbers = {
            key: x.astype(np.float64)
            for key, x in info.items()
            if isinstance(x, np.ndarray) and x.shape == (self.num_envs,) and x.dtype.kind in "fiub"
        }
        self._guard.write(observation, rows)
        return self._guard.outcome(rewards, terminated, truncated, numbers)

    def begin_episodes(self, ended: Bools, seeds: Seeds, rows: Rows) -> None:
        pass  # at the next step

    def can_save_state(self) -> bool:
        return False

    def save_state(self) -> bytes:
        raise NotImplementedError("EnvPool does not save states")

    def restore_state(self, state: bytes) -> None:
        raise NotImplementedError("EnvPool does not restore states")

    def close(self) -> None:
        self.inner.close()

    def _made(self, seed: int) -> Any:
        return self._make(self._task, env_type="gymnasium", num_envs=self.num_envs, seed=seed, **self._env_args)
