"""Encoders: from an observation to a vector of features."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

from htsrl.errors import ConfigError
from htsrl.spaces import ObservationLeaf

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}
SMALLEST_IMAGE = 36  # below this the Nature CNN's third convolution has nothing left to look at


Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


def orthogonal(layer: Layer, gain: float) -> Layer:
    """Orthogonal weights scaled by `gain`, zero bias."""
    nn.init.orthogonal_(layer.weight, gain)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


class Mlp(nn.Module):
    """Fully connected layers over the flattened (or one-hot) observation."""

    def __init__(
        self, leaf: ObservationLeaf, hidden_sizes: tuple[int, ...], activation: Literal["tanh", "relu"]
    ) -> None:
        super().__init__()
        self._leaf = leaf
        self._scale = 1 / 255 if leaf.dtype == "uint8" else 1.0
        width = leaf.num_categories or math.prod(leaf.shape)
        layers: list[nn.Module] = []
        for size in hidden_sizes:
            layers += [orthogonal(nn.Linear(width, size), math.sqrt(2)), ACTIVATIONS[activation]()]
            width = size
        self.layers = nn.Sequential(*layers)
        self.num_features = width

    def forward(self, obs: Tensor) -> Tensor:
        if self._leaf.num_categories is not None:
            x = nn.functional.one_hot(obs - self._leaf.start, self._leaf.num_categories).float()
        else:
            x = obs.reshape(len(obs), -1).float()
            if self._scale != 1.0:
                x = x * self._scale
        features: Tensor = self.layers(x)
        return features


class NatureCnn(nn.Module):
    """The convolutional network of Mnih et al. 2015 (https://doi.org/10.1038/nature14236), in channels_last order."""

    num_features = 512

    def __init__(self, leaf: ObservationLeaf) -> None:
        super().__init__()
        if len(leaf.shape) != 3:
            raise ConfigError(f"encoder=nature_cnn needs an image, not an observation of shape {leaf.shape}; use mlp")
        self._channels_last = leaf.channels_last
        self._scale = 1 / 255 if leaf.dtype == "uint8" else 1.0
        height, width, channels = leaf.shape if leaf.channels_last else (*leaf.shape[1:], leaf.shape[0])
        if min(height, width) < SMALLEST_IMAGE:
            raise ConfigError(
                f"images of {height}x{width} are too small for the Nature CNN, which needs {SMALLEST_IMAGE}x"
                f"{SMALLEST_IMAGE}; enlarge them or use --encoder mlp"
            )
        gain = math.sqrt(2)
        self.convolutions = nn.Sequential(
            orthogonal(nn.Conv2d(channels, 32, 8, stride=4), gain),
            nn.ReLU(),
            orthogonal(nn.Conv2d(32, 64, 4, stride=2), gain),
            nn.ReLU(),
            orthogonal(nn.Conv2d(64, 64, 3), gain),
            nn.ReLU(),
            nn.Flatten(),
        )
        with torch.no_grad():
            flat = self.convolutions(torch.zeros(1, channels, height, width)).shape[1]
        self.dense = nn.Sequential(orthogonal(nn.Linear(flat, self.num_features), gain), nn.ReLU())

    def forward(self, obs: Tensor) -> Tensor:
        images = obs.permute(0, 3, 1, 2) if self._channels_last else obs
        images = images.to(torch.float32, memory_format=torch.channels_last) * self._scale
        features: Tensor = self.dense(self.convolutions(images))
        return features
