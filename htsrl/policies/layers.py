"""The layers that networks are made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


def orthogonal(layer: Layer, gain: float) -> Layer:
    """Orthogonal weights scaled by `gain`, zero bias."""
    nn.init.orthogonal_(layer.weight, gain)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


class Dense(nn.Linear):
    """A fully connected layer. In a small network, finding the weights and choosing a kernel take torch's own as long
    as the numbers do.
    """

    def forward(self, x: Tensor) -> Tensor:
        own: dict[str, nn.Parameter] = self._parameters  # type: ignore[assignment]
        return torch.addmm(own["bias"], x, own["weight"].t())


class Mlp(nn.Module):
    """Fully connected layers."""

    def __init__(self, width: int, hidden_sizes: tuple[int, ...], activation: Literal["tanh", "relu"]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for size in hidden_sizes:
            layers += [orthogonal(Dense(width, size), math.sqrt(2)), ACTIVATIONS[activation]()]
            width = size
        self.layers = nn.Sequential(*layers)
        self.num_features = width

    def forward(self, x: Tensor) -> Tensor:
        # `forward` rather than a call, here and in the encoders: a call's hooks, which nobody uses, take as long as the
        # numbers of a small network.
        for layer in self.layers:
            x = layer.forward(x)
        return x
