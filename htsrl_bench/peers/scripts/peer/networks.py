"""The networks, for frameworks that bring none: the Nature CNN, and MLPs of 64 and 64 units with a tangent."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


def orthogonal(layer: nn.Linear | nn.Conv2d, gain: float = np.sqrt(2)) -> nn.Module:
    nn.init.orthogonal_(layer.weight, gain)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


class Scale(nn.Module):
    """Bytes to numbers from 0 to 1."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return pixels.float() / 255.0


def nature_cnn() -> nn.Module:
    """Features of an image; policy and value are heads on them."""
    return nn.Sequential(
        Scale(),
        orthogonal(nn.Conv2d(4, 32, 8, stride=4)),
        nn.ReLU(),
        orthogonal(nn.Conv2d(32, 64, 4, stride=2)),
        nn.ReLU(),
        orthogonal(nn.Conv2d(64, 64, 3, stride=1)),
        nn.ReLU(),
        nn.Flatten(-3),
        orthogonal(nn.Linear(64 * 7 * 7, 512)),
        nn.ReLU(),
    )


def rectified(num_inputs: int, num_units: int) -> nn.Module:
    """One hidden layer; policy and value are heads on it."""
    return nn.Sequential(orthogonal(nn.Linear(num_inputs, num_units)), nn.ReLU())


def mlp(num_inputs: int, num_outputs: int, gain: float) -> nn.Module:
    return nn.Sequential(
        orthogonal(nn.Linear(num_inputs, 64)),
        nn.Tanh(),
        orthogonal(nn.Linear(64, 64)),
        nn.Tanh(),
        orthogonal(nn.Linear(64, num_outputs), gain),
    )
