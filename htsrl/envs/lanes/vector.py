"""A vector environment of Gymnasium as a lane, whichever way it begins its next episodes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from numpy.typing import NDArray

from htsrl.envs.lanes.guard import LaneGuard
from htsrl.envs.lanes.lane import Bools, LaneInfo, LaneOutcome, Seeds
from htsrl.envs.lanes.plain_state import PlainState
from htsrl.envs.observing import Rows
from htsrl.errors import ConfigError
from htsrl.spaces import Interface
from htsrl.spaces.observations import ObservationLeaf

Copied = dict[str, NDArray[Any]]


class VectorLane:
    """Autoreset at the next step, at the same step, or by the caller (`metadata["autoreset_mode"]`).

    Where environments share one generator, it is seeded once, with the first of the lane's seeds; vectors that take a
    list of seeds get one for each environment.
    """

    def __init__(self, vector: VectorEnv[Any, Any, Any]) -> None:
        self.inner: Any = vector
        self.num_envs = vector.num_envs
        self.observation_space, self.action_space = vector.single_observation_space, vector.single_action_space
        self._mode = _autoreset_mode(vector)
        self.idles = self._mode is AutoresetMode.NEXT_STEP
        self._takes_seeds = isinstance(vector.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        self.seeds_episodes = self._takes_seeds and self._mode is AutoresetMode.DISABLED
        self._leaves = Interface(self.observation_space, self.action_space).observations
        self._guard = LaneGuard(self._leaves, self.num_envs)
        self._state = PlainState(vector)
        self._firsts: Copied = {}  # at the same step: what the new episodes of those that ended begin with
        self._has_warned = False

    def reset(self, seeds: Seeds, rows: Rows) -> None:
        seed = [int(seed) for seed in seeds] if self._takes_seeds else int(seeds[0])
        observation, _ = self.inner.reset(seed=seed)
        self._guard.write(observation, rows)

    def step(self, actions: NDArray[Any], rows: Rows) -> LaneOutcome:
        observation, rewards, terminated, truncated, info = self.inner.step(actions)
        outcome = self._guard.outcome(rewards, terminated, truncated, _numbers_in(info, self.num_envs))
        self._guard.write(observation, rows)
        ended = outcome.terminated | outcome.truncated
        if self._mode is AutoresetMode.SAME_STEP and ended.any():
            self._firsts = {name: x[ended] for name, x in rows.items()}
            return outcome._replace(has_finals=self._write_final(info, ended, rows))
        return outcome

    def begin_episodes(self, ended: Bools, seeds: Seeds, rows: Rows) -> None:
        if self._mode is AutoresetMode.SAME_STEP:
            for name, first in self._firsts.items():
                rows[name][ended] = first
        elif self._mode is AutoresetMode.DISABLED:
            named: dict[str, Any] = {}
            if self.seeds_episodes:
                named["seed"] = of_all = [None] * self.num_envs
                for env, seed in zip(np.flatnonzero(ended).tolist(), seeds.tolist(), strict=True):
                    of_all[env] = seed
            observation, _ = self.inner.reset(options={"reset_mask": ended.copy()}, **named)
            self._guard.write_some(observation, np.flatnonzero(ended), rows)

    def can_save_state(self) -> bool:
        return self._state.is_plain()

    def save_state(self) -> bytes:
        return self._state.save()

    def restore_state(self, state: bytes) -> None:
        self._state.restore(state)

    def close(self) -> None:
        self.inner.close()

    def _write_final(self, info: dict[str, Any], ended: Bools, rows: Rows) -> bool:
        """Whether there are final observations to write."""
        if "final_obs" in info:
            for name, leaf in self._leaves.items():
                rows[name][ended] = _final(info["final_obs"], leaf, ended)
            return True
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                "the vector environment begins episodes at the same step and gives no info['final_obs']; where a time "
                "limit cuts an episode, the value of the observation before its last step stands in for what followed",
                stacklevel=2,
            )
        return False


def _autoreset_mode(vector: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    mode = (vector.metadata or {}).get("autoreset_mode")
    if mode is None:
        raise ConfigError(
            f"{type(vector.unwrapped).__name__} does not say how its episodes start again; set "
            "metadata['autoreset_mode'] to one of gymnasium.vector.AutoresetMode"
        )
    return AutoresetMode(mode)


def _final(final_obs: Any, leaf: ObservationLeaf, ended: Bools) -> NDArray[Any]:
    """The final observations of those that ended; Gymnasium has them as one array, or as an object for each."""
    part = final_obs
    if isinstance(part, np.ndarray) and part.dtype == object:
        found = []
        for env in np.flatnonzero(ended):
            of_env = part[env]
            for key in leaf.path:
                of_env = of_env[key]
            found.append(np.asarray(of_env, leaf.dtype))
        return np.stack(found)
    for key in leaf.path:
        part = part[key]
    array: NDArray[Any] = np.asarray(part)[ended]
    return array


def _numbers_in(info: dict[str, Any], num_envs: int) -> LaneInfo:
    """Those of ended episodes included; whatever is not a number for each environment is left out."""
    told = _numbers(info, num_envs)
    final = info.get("final_info")
    if isinstance(final, dict):
        for key, numbers in _numbers(final, num_envs).items():
            here = ~np.isnan(numbers)
            told[key] = np.where(here, numbers, told.get(key, np.nan))
    return told


def _numbers(info: dict[str, Any], num_envs: int) -> dict[str, NDArray[Any]]:
    told = {}
    for key, values in info.items():
        is_array = isinstance(values, np.ndarray) and values.shape == (num_envs,) and values.dtype.kind in "fiub"
        if is_array and not key.startswith("_"):
            there = info.get(f"_{key}", np.ones(num_envs, np.bool_))
            told[key] = np.where(there, values.astype(np.float64), np.nan)
    return told
