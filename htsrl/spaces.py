"""What the rest of htsrl needs to know of Gymnasium's spaces: leaves with a shape, a dtype and a meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from htsrl.errors import ConfigError
from htsrl.seeding import ActionNoise


@dataclass(frozen=True)
class ObservationLeaf:
    """One array of an observation."""

    shape: tuple[int, ...]
    dtype: str
    num_categories: int | None = None
    """Set for a discrete leaf, which is one-hot encoded."""
    start: int = 0
    """The smallest value of a discrete leaf."""

    @property
    def is_image(self) -> bool:
        """Three axes of bytes."""
        return len(self.shape) == 3 and self.dtype == "uint8"

    @property
    def channels_last(self) -> bool:
        """Images put their channels on the smaller of the first and last axis; a tie goes to the first."""
        return self.shape[-1] < self.shape[0]


@dataclass(frozen=True)
class ActionLeaf:
    """How an action is stored, drawn, and handed to the environment."""

    shape: tuple[int, ...]
    dtype: str
    noise: ActionNoise
    num_categories: int | None = None
    """Set for discrete actions."""
    start: int = 0
    low: NDArray[Any] | None = None
    high: NDArray[Any] | None = None
    env_dtype: str | None = None

    def to_env(self, stored: Any) -> Any:
        """The stored action in the environment's own terms; continuous ones are clipped to their bounds."""
        if self.num_categories is not None:
            return int(stored) + self.start
        return np.clip(stored, self.low, self.high).astype(self.env_dtype)


def observation_leaves(space: spaces.Space[Any]) -> dict[str, ObservationLeaf]:
    """The arrays of an observation by field name."""
    if isinstance(space, spaces.Box):
        return {"obs": ObservationLeaf(space.shape, np.dtype(space.dtype).name)}
    if isinstance(space, spaces.Discrete):
        return {"obs": ObservationLeaf((), "int64", num_categories=int(space.n), start=int(space.start))}
    raise ConfigError(f"observation space {space} is not supported; use Box or Discrete, or wrap the environment")


def action_leaf(space: spaces.Space[Any]) -> ActionLeaf:
    if isinstance(space, spaces.Discrete):
        n = int(space.n)
        return ActionLeaf((), "int64", ActionNoise(gumbel=n), num_categories=n, start=int(space.start))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        size = int(np.prod(space.shape))
        dtype = np.dtype(space.dtype).name
        return ActionLeaf(
            space.shape, "float32", ActionNoise(normal=size), low=space.low, high=space.high, env_dtype=dtype
        )
    raise ConfigError(
        f"action space {space} is not supported; use Discrete or a Box of floats, or wrap the environment"
    )
