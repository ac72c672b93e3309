"""Stored actions of many environments, a row each, in the terms of a simulator that takes them all at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from htsrl.errors import ConfigError
from htsrl.spaces.actions import ActionLayout

ToEnvs = Callable[[NDArray[Any]], NDArray[Any]]


def many_actions(layout: ActionLayout) -> ToEnvs:
    """What `layout.to_env` does to one action, of a row for each environment; ConfigError where it has parts."""
    space = layout.space
    if isinstance(space, spaces.Discrete):
        start, dtype = np.int64(space.start), space.dtype
        return lambda stored: (stored + start).astype(dtype, copy=False)
    if isinstance(space, spaces.MultiDiscrete):
        starts, of_choices = space.start, space.dtype
        return lambda stored: (stored.reshape(-1, *starts.shape) + starts).astype(of_choices)
    if isinstance(space, spaces.MultiBinary):
        shape, of_bits = space.shape, space.dtype
        return lambda stored: stored.reshape(-1, *shape).astype(of_bits)
    if isinstance(space, spaces.Box):
        return _bounded(layout, space)
    raise ConfigError(
        f"action space {space} has parts, and a lane takes the actions of all its environments as one array; use "
        "Discrete, MultiDiscrete, MultiBinary or Box, or leave lanes out"
    )


def _bounded(layout: ActionLayout, space: spaces.Box) -> ToEnvs:
    squashed = layout.squashed.reshape(space.shape)
    half = np.nan_to_num(layout.half_ranges).reshape(space.shape)
    floor = np.where(squashed, space.low, 0.0)

    def to_envs(stored: NDArray[Any]) -> NDArray[Any]:
        drawn = stored.reshape(-1, *space.shape)
        if layout.squashes:
            drawn = np.where(squashed, floor + (np.tanh(drawn.astype(np.float64)) + 1) * half, drawn)
        return np.asarray(np.minimum(np.maximum(drawn, space.low), space.high), space.dtype)

    return to_envs
