"""Convolutional networks for images, in channels_last order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from htsrl.errors import ConfigError
from htsrl.policies.activations import multiplied, rectified
from htsrl.policies.choice import MIN_NATURE_SIZE, fits_nature
from htsrl.policies.half_precision import BITS, HALF, HalfEncoder, Halves, Product
from htsrl.policies.layers import ScalingConv2d, orthogonal
from htsrl.spaces import ObservationLeaf

IMPALA_CHANNELS = (16, 32, 32)
GAIN = math.sqrt(2)


class Images(nn.Module):
    """Brings images to floats, channels first; times `scale` they are from 0 to 1. Bytes in bfloat16 are exact."""

    def __init__(self, leaf: ObservationLeaf) -> None:
        super().__init__()
        self._channels_last = leaf.channels_last
        self.scale = 1 / 255 if leaf.dtype == "uint8" else 1.0
        self.height, self.width = leaf.image_size
        self.channels = leaf.shape[-1] if leaf.channels_last else leaf.shape[0]

    def forward(self, obs: Tensor, is_half: bool = False) -> Tensor:
        # Channels are brought together before bytes become floats: to do both at once takes twice as long.
        rows = obs if self._channels_last else torch.stack(obs.unbind(dim=1), dim=-1)
        dtype = HALF if is_half else torch.float32
        return rows.permute(0, 3, 1, 2).to(dtype, memory_format=torch.channels_last)

    def width_behind(self, network: nn.Module) -> int:
        """How many numbers `network` makes of an image."""
        with torch.no_grad():
            return network(self.blank()).numel()  # type: ignore[no-any-return]

    def blank(self) -> Tensor:
        return torch.zeros(1, self.channels, self.height, self.width)


class NatureCnn(HalfEncoder):
    """The convolutional network of Mnih et al. 2015 (https://doi.org/10.1038/nature14236)."""

    num_features = 512

    def __init__(self, leaf: ObservationLeaf, is_half: bool = False) -> None:
        super().__init__()
        self.images = Images(leaf)
        if not fits_nature(leaf):
            raise ConfigError(
                f"images of {self.images.height}x{self.images.width} are too small for the Nature CNN, which needs "
                f"{MIN_NATURE_SIZE}x{MIN_NATURE_SIZE}; enlarge them, or use --encoder impala or --encoder mlp"
            )
        self.convolutions = nn.Sequential(
            orthogonal(ScalingConv2d(self.images.scale, self.images.channels, 32, 8, stride=4), GAIN),
            nn.ReLU(inplace=True),
            orthogonal(nn.Conv2d(32, 64, 4, stride=2), GAIN),
            nn.ReLU(inplace=True),
            orthogonal(nn.Conv2d(64, 64, 3), GAIN),
            nn.ReLU(inplace=True),
            nn.Flatten(),
        )
        flat = self.images.width_behind(self.convolutions)
        self.dense = nn.Sequential(orthogonal(nn.Linear(flat, self.num_features), GAIN), nn.ReLU(inplace=True))
        self.find_products(is_half)
        with torch.no_grad():
            blank = torch.zeros(1, *leaf.shape, dtype=getattr(torch, leaf.dtype))
            self.activation_shapes = tuple(tuple(output.shape[1:]) for output in self.activations(blank))

    def forward(self, obs: Tensor) -> Tensor:
        return self.activations(obs)[-1].float()

    def activations(self, obs: Tensor, kept: Sequence[Tensor] | None = None) -> list[Tensor]:
        """What each layer makes of images, channels last; the last are the features. What was kept is not computed."""
        halves, outputs = self.halves(), []
        x = self.images(obs, self.is_half)
        if kept and self.is_half:
            kept = [bits.view(HALF) for bits in kept]
        for i, layer in enumerate(self.products):
            own = None if halves is None else halves[layer]
            if isinstance(layer, nn.Linear):
                output = rectified(layer, x.flatten(1), kept[i] if kept else None, own)
            else:
                x = rectified(layer, x, kept[i].permute(0, 3, 1, 2) if kept else None, own)
                output = x.permute(0, 2, 3, 1)
            outputs.append(output)
        return outputs

    def in_float32(self) -> Tensor:
        features: Tensor = self.dense(self.convolutions(self.images.blank()))
        return features

    def to_keep(self, activations: Sequence[Tensor]) -> list[Tensor]:
        """As storages hold them."""
        return [output.view(BITS) for output in activations] if self.is_half else list(activations)


class ImpalaCnn(HalfEncoder):
    """The residual network of Espeholt et al. 2018 (https://arxiv.org/abs/1802.01561), for images of any size."""

    num_features = 256

    def __init__(self, leaf: ObservationLeaf, is_half: bool = False) -> None:
        super().__init__()
        self.images = Images(leaf)
        channels = (self.images.channels, *IMPALA_CHANNELS)
        scales = (self.images.scale, 1.0, 1.0)
        stages = [_Stage(*of_stage) for of_stage in zip(scales, channels, IMPALA_CHANNELS, strict=False)]
        self.convolutions = nn.Sequential(*stages, nn.ReLU(inplace=True), nn.Flatten())
        flat = self.images.width_behind(self.convolutions)
        self.dense = nn.Sequential(orthogonal(nn.Linear(flat, self.num_features), GAIN), nn.ReLU(inplace=True))
        self._stages = tuple(stages)
        self.find_products(is_half)

    def forward(self, obs: Tensor) -> Tensor:
        if (halves := self.halves()) is not None:
            return self._in_half(self.images(obs, is_half=True), halves)
        features: Tensor = self.dense(self.convolutions(self.images(obs)))
        return features

    def in_float32(self) -> Tensor:
        features: Tensor = self.dense(self.convolutions(self.images.blank()))
        return features

    def _in_half(self, x: Tensor, halves: Mapping[Product, Halves]) -> Tensor:
        for stage in self._stages:
            x = stage.in_half(x, halves)
        dense = self.products[-1]
        return rectified(dense, torch.relu(x).flatten(1), halves=halves[dense]).float()


class _Stage(nn.Sequential):
    """Halves the image, then two residual blocks."""

    def __init__(self, scale: float, channels_in: int, channels: int) -> None:
        super().__init__(
            orthogonal(ScalingConv2d(scale, channels_in, channels, 3, padding=1), GAIN),
            nn.MaxPool2d(3, stride=2, padding=1),
            _Block(channels),
            _Block(channels),
        )

    def in_half(self, x: Tensor, halves: Mapping[Product, Halves]) -> Tensor:
        """The same with products in bfloat16."""
        convolution, pool, *blocks = self
        assert isinstance(convolution, nn.Conv2d)
        x = pool(multiplied(convolution, x, halves[convolution]))
        for block in blocks:
            assert isinstance(block, _Block)
            x = block.in_half(x, halves)
        return x


class _Block(nn.Module):
    """Two convolutions whose result is added to what went in."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReLU(),
            orthogonal(nn.Conv2d(channels, channels, 3, padding=1), GAIN),
            nn.ReLU(inplace=True),
            orthogonal(nn.Conv2d(channels, channels, 3, padding=1), GAIN),
        )

    def forward(self, x: Tensor) -> Tensor:
        changed: Tensor = self.layers(x)
        return x + changed

    def in_half(self, x: Tensor, halves: Mapping[Product, Halves]) -> Tensor:
        """The same with products in bfloat16."""
        changed = x
        for layer in self.layers:
            if isinstance(layer, nn.Conv2d):
                changed = multiplied(layer, torch.relu(changed), halves[layer])
        return x + changed
