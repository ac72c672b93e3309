"""A lane of one's own, which writes in place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.envs.lanes.guard import LaneGuard
from htsrl.envs.lanes.lane import Bools, Lane, LaneOutcome, Seeds
from htsrl.envs.observing import Rows
from htsrl.errors import RuleBroken
from htsrl.spaces import Interface


class OwnLane:
    """Every episode has a seed of its own, so a lane of many environments is many lanes of one."""

    idles = False
    seeds_episodes = True

    def __init__(self, lane: Lane, num_envs: int) -> None:
        self.inner: Any = lane
        self.num_envs = num_envs
        self.observation_space, self.action_space = lane.single_observation_space, lane.single_action_space
        self._guard = LaneGuard(Interface(self.observation_space, self.action_space).observations, num_envs)
        self._all = np.arange(num_envs)
        self._rewards = np.empty(num_envs, np.float32)
        self._terminated, self._truncated = np.empty((2, num_envs), np.bool_)

    def reset(self, seeds: Seeds, rows: Rows) -> None:
        self.inner.reset(self._all, seeds, _as_written(rows))
        self._guard.check_rows(rows)

    def step(self, actions: NDArray[Any], rows: Rows) -> LaneOutcome:
        info = self.inner.step(actions, _as_written(rows), self._rewards, self._terminated, self._truncated)
        self._guard.check_rows(rows)
        return self._guard.outcome(self._rewards, self._terminated, self._truncated, self._checked(info))

    def begin_episodes(self, ended: Bools, seeds: Seeds, rows: Rows) -> None:
        self.inner.reset(np.flatnonzero(ended), seeds, _as_written(rows))
        self._guard.check_rows(rows)

    def can_save_state(self) -> bool:
        return all(callable(getattr(self.inner, name, None)) for name in ("save_state", "restore_state"))

    def save_state(self) -> bytes:
        return bytes(self.inner.save_state())

    def restore_state(self, state: bytes) -> None:
        self.inner.restore_state(state)

    def close(self) -> None:
        if close := getattr(self.inner, "close", None):
            close()

    def _checked(self, info: Any) -> dict[str, NDArray[Any]]:
        told = {} if info is None else {key: np.asarray(numbers) for key, numbers in info.items()}
        for key, numbers in told.items():
            if numbers.shape[:1] != (self.num_envs,):
                raise RuleBroken(
                    f"info[{key!r}] of the lane has shape {numbers.shape}; it needs a number for each of "
                    f"{self.num_envs} environments"
                )
        return told


def _as_written(rows: Rows) -> Any:
    """One array, or a dict by key where observations have parts."""
    return rows["obs"] if list(rows) == ["obs"] else {name.removeprefix("obs/"): x for name, x in rows.items()}
