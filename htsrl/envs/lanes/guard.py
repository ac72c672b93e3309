"""Looks at what a lane returns, on its way into the storage: NumPy would stretch a wrong shape without a word."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.envs.lanes.lane import Bools, LaneInfo, LaneOutcome
from htsrl.envs.observing import Rows
from htsrl.errors import RuleBroken
from htsrl.spaces.observations import ObservationLeaf


class LaneGuard:
    """The rules of one lane's observations and outcomes."""

    def __init__(self, leaves: dict[str, ObservationLeaf], num_envs: int) -> None:
        self._leaves = leaves
        self._num_envs = num_envs

    def write(self, observation: Any, rows: Rows) -> None:
        """Copy what a simulator returned into the rows, all environments at once."""
        for name, leaf in self._leaves.items():
            part = observation
            for key in leaf.path:
                part = part[key]
            rows[name][...] = self._fitting(name, leaf, part, self._num_envs)
        self.check_rows(rows)

    def write_some(self, observation: Any, envs: NDArray[Any], rows: Rows) -> None:
        """Of some environments what one array of all environments shows."""
        for name, leaf in self._leaves.items():
            part = observation
            for key in leaf.path:
                part = part[key]
            rows[name][envs] = self._fitting(name, leaf, part, self._num_envs)[envs]
        self.check_rows(rows)

    def check_rows(self, rows: Rows) -> None:
        for name, leaf in self._leaves.items():
            values = rows[name]
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                env = int(np.argwhere(~np.isfinite(values))[0][0])
                raise RuleBroken(f"{_called(name)} of the lane's environment {env} is not finite: {values[env]}")
            if leaf.categories is not None:
                first = np.array(leaf.starts).reshape(leaf.shape)
                last = first + np.array(leaf.categories).reshape(leaf.shape) - 1
                outside = (values < first) | (values > last)
                if outside.any():
                    env = int(np.argwhere(outside)[0][0])
                    raise RuleBroken(
                        f"{_called(name)} of the lane's environment {env} is {values[env]}, its space reaches from "
                        f"{first} to {last}"
                    )

    def outcome(self, rewards: Any, terminated: Any, truncated: Any, info: LaneInfo) -> LaneOutcome:
        rewards = self._numbers("rewards", rewards)
        if not np.isfinite(rewards).all():
            env = int(np.flatnonzero(~np.isfinite(rewards))[0])
            raise RuleBroken(f"the reward of the lane's environment {env} is {rewards[env]}, which is not finite")
        return LaneOutcome(rewards, self._flags("terminated", terminated), self._flags("truncated", truncated), info)

    def _fitting(self, name: str, leaf: ObservationLeaf, part: Any, count: int) -> NDArray[Any]:
        array, expected = np.asarray(part), (count, *leaf.shape)
        if array.shape != expected:
            raise RuleBroken(
                f"{_called(name)} of a lane of {count} environments has shape {array.shape}, their space makes it "
                f"{expected}"
            )
        is_category = leaf.categories is not None and array.dtype.kind in "iu"
        if array.dtype != np.dtype(leaf.dtype) and not is_category:
            raise RuleBroken(f"{_called(name)} of the lane has dtype {array.dtype}, its space has {leaf.dtype}")
        return array

    def _numbers(self, name: str, values: Any) -> NDArray[Any]:
        array = np.asarray(values)
        if array.shape != (self._num_envs,) or array.dtype.kind not in "fiu":
            raise RuleBroken(
                f"{name} of the lane are {array.dtype} of shape {array.shape}; {self._num_envs} environments need "
                f"numbers of shape ({self._num_envs},)"
            )
        return array

    def _flags(self, name: str, values: Any) -> Bools:
        array = np.asarray(values)
        if array.shape != (self._num_envs,) or array.dtype != np.bool_:
            raise RuleBroken(
                f"{name} of the lane is {array.dtype} of shape {array.shape}; {self._num_envs} environments need bool "
                f"of shape ({self._num_envs},)"
            )
        return array


def _called(name: str) -> str:
    return "the observation" if name == "obs" else f"the observation's {name.removeprefix('obs/')!r}"
