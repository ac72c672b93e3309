"""Actions of any space as one row of numbers: choices first, then continuous dimensions.

Discrete, MultiDiscrete and MultiBinary actions are choices among so many values, Box actions continuous dimensions;
Dict and Tuple put them together. So whatever an action looks like to its environment, a policy has a logit for every
value of every choice and a mean for every dimension, and one row stores what was drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from htsrl.errors import ConfigError
from htsrl.seeding import ActionNoise
from htsrl.spaces.observations import parts_of

Row = NDArray[Any]
Build = Callable[[Row], Any]
"""Makes a part of the environment's action from a stored row."""


@dataclass(frozen=True)
class ActionLayout:
    """How an action is stored, drawn, and handed to the environment."""

    space: spaces.Space[Any]
    categories: tuple[int, ...]
    """How many values each choice has."""
    low: NDArray[np.float64]
    """Lower bounds of the continuous dimensions, flattened."""
    high: NDArray[np.float64]
    squashes: bool = False
    """Whether dimensions with two bounds are squashed into them, rather than clipped at them."""

    @property
    def num_continuous(self) -> int:
        return len(self.low)

    @property
    def noise(self) -> ActionNoise:
        return ActionNoise(gumbel=sum(self.categories), normal=self.num_continuous)

    @property
    def is_single_choice(self) -> bool:
        return isinstance(self.space, spaces.Discrete)

    @property
    def shape(self) -> tuple[int, ...]:
        return () if self.is_single_choice else (len(self.categories) + self.num_continuous,)

    @property
    def dtype(self) -> str:
        return "float32" if self.num_continuous else "int64"

    @cached_property
    def squashed(self) -> NDArray[np.bool_]:
        """Which of the continuous dimensions are squashed: those with two bounds and something between them."""
        has_room = np.isfinite(self.low) & np.isfinite(self.high) & (self.low < self.high)
        return has_room if self.squashes else np.zeros(len(self.low), np.bool_)

    @cached_property
    def half_ranges(self) -> NDArray[np.float64]:
        """Half the distance of the bounds of the dimensions that are squashed, nan for the others."""
        return np.where(self.squashed, self.high / 2 - self.low / 2, np.nan)

    def to_env(self, stored: Any) -> Any:
        """The stored action in the environment's own terms."""
        return self._build(stored)

    @cached_property
    def _build(self) -> Build:
        if isinstance(self.space, spaces.Discrete):
            start = int(self.space.start)
            return lambda stored: int(stored) + start
        return _Builder(self).part(self.space)


class _Builder:
    """Hands out the columns of a row, in order, to the parts of a space."""

    def __init__(self, layout: ActionLayout) -> None:
        self._layout = layout
        self._squashed = layout.squashed
        self._choices = 0
        self._dimensions = 0

    def part(self, space: spaces.Space[Any]) -> Build:
        if isinstance(space, spaces.Dict):
            named = {key: self.part(part) for key, part in parts_of(space)}
            return lambda row: {key: build(row) for key, build in named.items()}
        if isinstance(space, spaces.Tuple):
            builds = [self.part(part) for _, part in parts_of(space)]
            return lambda row: tuple(build(row) for build in builds)
        return self._box(space) if isinstance(space, spaces.Box) else self._choice(space)

    def _choice(self, space: spaces.Space[Any]) -> Build:
        first = self._choices
        self._choices += len(_categories(space))
        columns, dtype = slice(first, self._choices), space.dtype
        if isinstance(space, spaces.Discrete):
            start = int(space.start)
            return lambda row: int(row[first]) + start
        starts = space.start if isinstance(space, spaces.MultiDiscrete) else np.zeros(space.shape or (), np.int64)
        return lambda row: (row[columns].reshape(starts.shape) + starts).astype(dtype)

    def _box(self, space: spaces.Box) -> Build:
        first = len(self._layout.categories) + self._dimensions
        size = int(np.prod(space.shape))
        dimensions = slice(self._dimensions, self._dimensions + size)
        self._dimensions += size
        columns, low, high, shape = slice(first, first + size), space.low, space.high, space.shape
        squashed = self._squashed[dimensions].reshape(shape)
        # Bounds that are not finite would make nan of dimensions that are not squashed.
        half = np.nan_to_num(self._layout.half_ranges[dimensions]).reshape(shape)
        floor = np.where(squashed, low, 0.0)

        def build(row: Row) -> NDArray[Any]:
            drawn = row[columns] if len(shape) == 1 else row[columns].reshape(shape)
            if self._layout.squashes:
                drawn = np.where(squashed, floor + (np.tanh(drawn.astype(np.float64)) + 1) * half, drawn)
            # np.clip would take three times as long; a single number stays an array.
            return np.asarray(np.minimum(np.maximum(drawn, low), high), space.dtype)

        return build


def action_layout(space: spaces.Space[Any], squashes: bool = False) -> ActionLayout:
    """How actions of `space` lie in a row; ConfigError where it has a part that cannot."""
    choices, boxes = _parts(space)
    bounds = [
        np.concatenate([np.empty(0), *(getattr(box, side).flatten() for box in boxes)]) for side in ("low", "high")
    ]
    categories = tuple(n for choice in choices for n in _categories(choice))
    if not categories and not len(bounds[0]):
        raise ConfigError(f"action space {space} has nothing to do; give it a part")
    return ActionLayout(space, categories, bounds[0].astype(np.float64), bounds[1].astype(np.float64), squashes)


def _parts(space: spaces.Space[Any]) -> tuple[list[spaces.Space[Any]], list[spaces.Box]]:
    """The parts that are choices, and those that are continuous."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        found = [_parts(part) for _, part in parts_of(space)]
        return [choice for choices, _ in found for choice in choices], [box for _, boxes in found for box in boxes]
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return [space], []
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return [], [space]
    raise ConfigError(
        f"action space {space} is not supported; use Discrete, MultiDiscrete, MultiBinary, a Box of floats, or Dict "
        "and Tuple of these, or wrap the environment"
    )


def _categories(choice: spaces.Space[Any]) -> tuple[int, ...]:
    if isinstance(choice, spaces.Discrete):
        return (int(choice.n),)
    if isinstance(choice, spaces.MultiDiscrete):
        return tuple(map(int, choice.nvec.flatten()))
    assert isinstance(choice, spaces.MultiBinary)
    return (2,) * int(np.prod(choice.shape))
