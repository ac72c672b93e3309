"""Observations as leaves: named arrays with a shape, a dtype and a meaning, however deep a space nests them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from htsrl.errors import ConfigError

MASK_KEY = "action_mask"
"""In a Dict observation, what may be done rather than what is seen."""


@dataclass(frozen=True)
class ObservationLeaf:
    """One array of an observation."""

    shape: tuple[int, ...]
    dtype: str
    categories: tuple[int, ...] | None = None
    """How many values each element of a discrete leaf can have; they are one-hot encoded."""
    starts: tuple[int, ...] = ()
    """The smallest value of each element of a discrete leaf."""
    path: tuple[Any, ...] = ()
    """The keys that lead to it from the whole observation."""

    @property
    def width(self) -> int:
        """As a flat vector."""
        return math.prod(self.shape) if self.categories is None else sum(self.categories)

    @property
    def is_image(self) -> bool:
        """Three axes of bytes."""
        return len(self.shape) == 3 and self.dtype == "uint8"

    @property
    def channels_last(self) -> bool:
        """Images put their channels on the smaller of the first and last axis; a tie goes to the first."""
        return self.shape[-1] < self.shape[0]

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width, of an image."""
        height, width = self.shape[:2] if self.channels_last else self.shape[1:]
        return height, width

    @property
    def blank(self) -> NDArray[Any]:
        """The least that a network can take; of a mask, that everything is allowed."""
        if self.path == (MASK_KEY,):
            return np.ones(self.shape, self.dtype)
        return np.array(self.starts or 0, self.dtype).reshape(self.shape if self.starts else ())


def observation_leaves(space: spaces.Space[Any]) -> dict[str, ObservationLeaf]:
    """The leaves of an observation by field name: `obs`, or `obs/key`, `obs/0` and so on where it has parts."""
    leaves: dict[str, ObservationLeaf] = {}
    for name, leaf in _leaves(space, "obs", ()):
        if name in leaves:
            raise ConfigError(f"observation space {space} has two parts that would be called {name!r}; rename one")
        if not leaf.width:
            raise ConfigError(f"observation space {space} has no elements in {name!r}; leave that part out")
        leaves[name] = leaf
    if not leaves:
        raise ConfigError(f"observation space {space} has nothing to see; give it a part")
    return leaves


def _leaves(space: spaces.Space[Any], name: str, path: tuple[Any, ...]) -> Iterator[tuple[str, ObservationLeaf]]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, part in parts_of(space):
            if (*path, key) != (MASK_KEY,):
                yield from _leaves(part, f"{name}/{key}", (*path, key))
    elif isinstance(space, spaces.Box | spaces.MultiBinary):
        yield name, ObservationLeaf(tuple(space.shape), np.dtype(space.dtype).name, path=path)
    elif isinstance(space, spaces.Discrete):
        yield name, ObservationLeaf((), "int64", (int(space.n),), (int(space.start),), path)
    elif isinstance(space, spaces.MultiDiscrete):
        categories, starts = (tuple(map(int, numbers.flatten())) for numbers in (space.nvec, space.start))
        yield name, ObservationLeaf(tuple(space.shape), np.dtype(space.dtype).name, categories, starts, path)
    else:
        raise ConfigError(
            f"observation space {space} is not supported{f' (in {name!r})' if path else ''}; use Box, Discrete, "
            "MultiDiscrete, MultiBinary, or Dict and Tuple of these, or wrap the environment"
        )


def parts_of(space: spaces.Dict | spaces.Tuple[Any]) -> list[tuple[Any, spaces.Space[Any]]]:
    return list(space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces))
