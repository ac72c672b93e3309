"""The layers that networks are made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, linear

Activation = Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, tuple[type[nn.Module], Activation]] = {
    "tanh": (nn.Tanh, torch.tanh_),
    "relu": (nn.ReLU, torch.relu_),
}
"""As a module, which gives the layers around it their names, and as what it does, in place."""

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


def orthogonal(layer: Layer, gain: float) -> Layer:
    """Orthogonal weights scaled by `gain`, zero bias."""
    nn.init.orthogonal_(layer.weight, gain)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


class Dense(nn.Linear):
    """A fully connected layer. In a small network, finding the weights takes torch's own as long as the numbers do."""

    def forward(self, x: Tensor) -> Tensor:
        own: dict[str, nn.Parameter] = self._parameters  # type: ignore[assignment]
        return linear(x, own["weight"], own["bias"])


class ScalingConv2d(nn.Conv2d):
    """A convolution of `scale` times what it is given. The weights are scaled: there are fewer of them."""

    def __init__(
        self, scale: float, channels_in: int, channels: int, size: int, stride: int = 1, padding: int = 0
    ) -> None:
        super().__init__(channels_in, channels, size, stride, padding)
        self._scale = scale

    def scaled_weight(self) -> Tensor:
        return self.weight * self._scale

    def forward(self, x: Tensor) -> Tensor:
        return conv2d(x, self.scaled_weight(), self.bias, self.stride, self.padding)


class Mlp(nn.Module):
    """Fully connected layers."""

    def __init__(self, width: int, hidden_sizes: tuple[int, ...], activation: Literal["tanh", "relu"]) -> None:
        super().__init__()
        module, self._activation = ACTIVATIONS[activation]
        layers: list[nn.Module] = []
        for size in hidden_sizes:
            layers += [orthogonal(Dense(width, size), math.sqrt(2)), module()]
            width = size
        self.layers = nn.Sequential(*layers)
        self._dense = tuple(layers[::2])  # what `forward` goes through: a tuple is faster than modules within a module
        self.num_features = width

    def forward(self, x: Tensor) -> Tensor:
        # `forward` rather than a call, here and in the encoders: a call's hooks, which nobody uses, take as long as the
        # numbers of a small network.
        for dense in self._dense:
            x = self._activation(dense.forward(x))
        return x
