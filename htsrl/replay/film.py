"""Frames of one environment while its rollouts are made again: what it showed when each action was asked for."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from htsrl.envs.rendering import fps_of, frame_of
from htsrl.roles.env_runner import Stage
from htsrl.roles.executor import Executor

Frame = NDArray[np.uint8]
MakeEnv = Callable[[], gymnasium.Env[Any, Any]]


class Film:
    """Keeps them compressed: a rollout may have thousands."""

    def __init__(self, env: int, rollouts: Collection[int], make_env: MakeEnv) -> None:
        """`make_env` is of an environment that renders."""
        self.env = env
        self.fps = 0.0
        self.first_rollout = min(rollouts)
        self._rollouts = rollouts
        self._make_env = make_env
        self._made: gymnasium.Env[Any, Any] | None = None
        self._frames: dict[tuple[int, int], tuple[bytes, tuple[int, ...]] | None] = {}

    def make_env(self) -> gymnasium.Env[Any, Any]:
        self._made = self._make_env()
        self.fps = fps_of(self._made)
        return self._made

    def look(self, executor: Executor) -> None:
        """After every turn of the executor."""
        runner = executor.env_runners[self.env]
        place = runner.rollout, runner.row
        if runner.stage is not Stage.ACTION or runner.rollout not in self._rollouts or place in self._frames:
            return
        assert self._made is not None
        shown = frame_of(self._made)
        self._frames[place] = None if shown is None else (zlib.compress(shown.tobytes(), 1), shown.shape)

    def frame(self, rollout: int, row: int) -> Frame | None:
        """None where the environment drew nothing."""
        kept = self._frames.get((rollout, row))
        if kept is None:
            return None
        return np.frombuffer(zlib.decompress(kept[0]), np.uint8).reshape(kept[1])
