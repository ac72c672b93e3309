"""Brings what an environment shows into the rows of a storage, and checks it on its way there."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.envs.team import Info
from htsrl.errors import RuleBroken
from htsrl.spaces import Interface, ObservationLeaf
from htsrl.spaces.masks import MaskReader
from htsrl.spaces.observations import MASK_KEY

Rows = dict[str, NDArray[Any]]
"""Where the leaves of an observation belong, by field name."""


class ObservationWriter:
    """Writes the leaves of an observation, and the action mask if there is one, where they belong."""

    def __init__(self, interface: Interface) -> None:
        leaves = {name: leaf for name, leaf in interface.observations.items() if name != MASK_KEY}
        self._guards = [(name, leaf.path, ObservationGuard(name, leaf)) for name, leaf in leaves.items()]
        self._read_mask = MaskReader(interface.actions) if interface.has_masks else None
        self._masks_in_info = interface.masks_in_info

    def write(self, observation: Any, rows: Rows) -> None:
        for name, path, checked in self._guards:
            part = observation
            for key in path:
                part = part[key]
            rows[name][...] = checked(part)

    def write_mask(self, observation: Any, info: Info, rows: Rows, is_last: bool = False) -> None:
        """The mask, wherever it is; after an episode's last step nobody looks at it."""
        if self._read_mask is None:
            return
        if not self._masks_in_info:
            mask = observation[MASK_KEY]
        elif MASK_KEY in info:
            mask = info[MASK_KEY]
        elif is_last:
            mask = None
        else:
            raise RuleBroken(f"info has no {MASK_KEY}, which it had after the first reset; return it after every step")
        rows[MASK_KEY][...] = self._read_mask(mask, is_last)


class ObservationGuard:
    """Lets through what may be stored: NumPy would stretch a wrong shape and cut a wrong type without a word."""

    def __init__(self, name: str, leaf: ObservationLeaf) -> None:
        self._what = "the observation" if name == "obs" else f"the observation's {name.removeprefix('obs/')!r}"
        self._shape = leaf.shape
        self._dtype = np.dtype(leaf.dtype)
        self._is_float = self._dtype.kind == "f"
        self._is_category = leaf.categories is not None
        if leaf.categories is not None:
            self._first = np.array(leaf.starts).reshape(leaf.shape)
            self._last = self._first + np.array(leaf.categories).reshape(leaf.shape) - 1

    def __call__(self, observation: Any) -> NDArray[Any]:
        array = np.asarray(observation)
        if array.shape != self._shape:
            raise RuleBroken(f"{self._what} has shape {array.shape}, its space has {self._shape}")
        if array.dtype != self._dtype and not (self._is_category and array.dtype.kind in "iu"):
            raise RuleBroken(f"{self._what} has dtype {array.dtype}, its space has {self._dtype}")
        # One number that is not finite makes the sum of squares so; large ones can too, hence the second look.
        if self._is_float and not math.isfinite(np.vdot(array, array)) and not np.isfinite(array).all():
            raise RuleBroken(f"{self._what} is not finite: {array}")
        if self._is_category and not ((self._first <= array) & (array <= self._last)).all():
            raise RuleBroken(f"{self._what} is {array}, its space reaches from {self._first} to {self._last}")
        return array
