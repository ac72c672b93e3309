"""A policy that knows nothing: what a dataset is collected with before there is a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.spaces import Interface
from htsrl.spaces.observations import MASK_KEY

LEAST = np.finfo(np.float32).min


class RandomPolicy:
    """Uniform within bounds, normal where there are none, and among the choices that a mask allows."""

    version = 0
    source = Path("random")
    state_size = 0

    def __init__(self, interface: Interface) -> None:
        assert not interface.squashes, "its rows are in the environment's terms"
        self.interface = interface

    def answer(
        self, rows: Any, states: NDArray[Any] | None, noise: NDArray[Any] | None
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Gumbel noise alone makes a uniform choice of the largest, and a normal number's rank is uniform."""
        assert noise is not None, "a random policy has no most likely actions"
        layout = self.interface.actions
        gumbel, normal = np.split(noise.astype(np.float64), [sum(layout.categories)], axis=1)
        if MASK_KEY in rows:
            gumbel = np.where(rows[MASK_KEY], gumbel, LEAST)
        borders = np.cumsum(layout.categories)[:-1]
        choices = [part.argmax(axis=1) for part in np.split(gumbel, borders, axis=1)] if layout.categories else []
        if layout.is_single_choice:
            return choices[0], states
        has_bounds = np.isfinite(layout.low) & np.isfinite(layout.high)
        low, high = (np.where(has_bounds, bound, 0.0) for bound in (layout.low, layout.high))
        continuous = np.where(has_bounds, low + _rank(normal) * (high - low), normal)
        drawn = np.concatenate(
            [np.stack(choices, axis=1) if choices else np.empty((len(noise), 0)), continuous], axis=1
        )
        return drawn.astype(layout.dtype), states


def _rank(normal: NDArray[np.float64]) -> NDArray[np.float64]:
    """Phi, by Abramowitz and Stegun 7.1.26, to 1.5e-7."""
    x = np.abs(normal) / np.sqrt(2.0)
    t = 1 / (1 + 0.3275911 * x)
    polynomial = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    erf = 1 - polynomial * np.exp(-x * x)
    return np.asarray(0.5 * (1 + np.sign(normal) * erf), np.float64)
