"""What one agent of an environment sees and does: the leaves of its observations and the layout of its actions."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from htsrl.errors import ConfigError, RuleBroken
from htsrl.spaces.actions import ActionLayout, action_layout
from htsrl.spaces.masks import MaskReader
from htsrl.spaces.observations import MASK_KEY, ObservationLeaf, observation_leaves


@dataclass(frozen=True)
class Interface:
    """The spaces of an environment, understood."""

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    masks_in_info: bool = False
    """Whether `info["action_mask"]` says what may be done."""
    squashes: bool = False
    """Whether actions with bounds are squashed into them."""

    def __post_init__(self) -> None:
        if self.has_masks:
            self._check_masks()

    @cached_property
    def observations(self) -> dict[str, ObservationLeaf]:
        """All that a policy is given of a moment, by field name."""
        leaves = observation_leaves(self.observation_space)
        if self.has_masks:
            leaves[MASK_KEY] = ObservationLeaf((sum(self.actions.categories),), "bool", path=(MASK_KEY,))
        return leaves

    @cached_property
    def actions(self) -> ActionLayout:
        return action_layout(self.action_space, self.squashes)

    @property
    def masks_in_observation(self) -> bool:
        return isinstance(self.observation_space, spaces.Dict) and MASK_KEY in self.observation_space.spaces

    @property
    def has_masks(self) -> bool:
        return self.masks_in_observation or self.masks_in_info

    def empty_rows(self, *leading: int) -> dict[str, NDArray[Any]]:
        """Room for observations."""
        return {name: np.zeros((*leading, *leaf.shape), leaf.dtype) for name, leaf in self.observations.items()}

    def _check_masks(self) -> None:
        if not self.actions.categories:
            raise ConfigError(
                f"there is an {MASK_KEY}, but action space {self.action_space} has no choices that it could mask; "
                "give it another name"
            )
        if self.masks_in_observation:
            assert isinstance(self.observation_space, spaces.Dict)
            space = self.observation_space.spaces[MASK_KEY]
            try:
                MaskReader(self.actions)(deepcopy(space).sample(), is_last=True)  # the environment's own stays as it is
            except RuleBroken as error:
                raise ConfigError(
                    f"the observation's {MASK_KEY}, {space}, does not fit the actions: {error}; "
                    "give it a value for every value of every choice"
                ) from error
