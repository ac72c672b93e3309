"""Small numbers about an update."""

from __future__ import annotations

import torch
from torch import Tensor

EPSILON = 1e-8
"""Added to a deviation that is divided by."""


class Statistics:
    """Collects scalars by name; reads them from the device once, at the end."""

    def __init__(self) -> None:
        self._scalars: dict[str, list[Tensor]] = {}

    def add(self, name: str, scalar: Tensor) -> None:
        self._scalars.setdefault(name, []).append(scalar.detach())

    def means(self) -> dict[str, float]:
        return {name: torch.stack(scalars).mean().item() for name, scalars in self._scalars.items()}


def explained_variance(values: Tensor, returns: Tensor) -> Tensor:
    """1 when the values predict the returns exactly, 0 when they are no better than a constant; NaN of none."""
    if not len(returns):
        return returns.new_tensor(torch.nan)
    return 1 - (returns - values).var(correction=0) / returns.var(correction=0)


def normalized(advantages: Tensor, epsilon: float = EPSILON) -> Tensor:
    """Mean 0 and deviation 1, the one with n - 1 under its root; of a single one there is nothing to tell."""
    if len(advantages) < 2:
        return torch.zeros_like(advantages)
    return (advantages - advantages.mean()) / (advantages.std() + epsilon)
