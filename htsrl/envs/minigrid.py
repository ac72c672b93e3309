"""MiniGrid and BabyAI: what the agent sees of the grid, as bytes that a network can use."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from htsrl.envs.extras import import_simulator
from htsrl.errors import ConfigError

UInt8 = NDArray[np.uint8]
View = Literal["partial", "full", "pixels"]

NUM_DIRECTIONS = 4
LIT = 255  # networks take bytes as shares of 255, so this is a 1


def make_minigrid(env_id: str, view: View = "partial", **env_args: Any) -> gymnasium.Env[Any, Any]:
    """The task that MiniGrid registers as `env_id`.

    `view` is what is observed: "partial", the cells before the agent (7x7 if not told otherwise), or "full", all of
    the grid, both as `OneHotCells`; "pixels", a picture of the cells before the agent, 8 pixels a cell. The mission's
    text is never part of it, so a task whose goal only the mission tells cannot be solved beyond chance.
    """
    if view not in ("partial", "full", "pixels"):
        raise ConfigError(f"view={view!r} is not partial, full or pixels")
    import_simulator("minigrid", extra="minigrid")
    wrappers = import_simulator("minigrid.wrappers", extra="minigrid")
    env = gymnasium.make(env_id, disable_env_checker=True, **env_args)
    if view == "pixels":
        return wrappers.ImgObsWrapper(wrappers.RGBImgPartialObsWrapper(env))  # type: ignore[no-any-return]
    return OneHotCells(wrappers.FullyObsWrapper(env) if view == "full" else env)


class OneHotCells(gymnasium.ObservationWrapper[UInt8, Any, dict[str, Any]]):
    """Each cell's object, colour and state one-hot, then the agent's direction; a flat vector of bytes, 0 or 255."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        constants = import_simulator("minigrid.core.constants", extra="minigrid")
        # In the full view the state of the agent's own cell is its direction.
        sizes = (len(constants.OBJECT_TO_IDX), len(constants.COLOR_TO_IDX), NUM_DIRECTIONS)
        assert isinstance(env.observation_space, spaces.Dict)
        width, height, _ = env.observation_space["image"].shape or ()
        self._cells = np.arange(width * height)[:, np.newaxis]
        self._offsets = np.cumsum([0, *sizes[:-1]])
        self._one_hot: UInt8 = np.zeros((width * height, sum(sizes)), np.uint8)
        self.observation_space = spaces.Box(0, LIT, (self._one_hot.size + NUM_DIRECTIONS,), np.uint8)

    def observation(self, observation: dict[str, Any]) -> UInt8:
        self._one_hot[:] = 0
        self._one_hot[self._cells, observation["image"].reshape(-1, 3) + self._offsets] = LIT
        direction = np.zeros(NUM_DIRECTIONS, np.uint8)
        direction[observation["direction"]] = LIT
        return np.concatenate((self._one_hot.ravel(), direction))
