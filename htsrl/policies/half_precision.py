"""Layers that multiply in bfloat16, by copies of their weights, which stay float32.

A product of two bfloat16 numbers is summed up in float32 and rounded once, to bfloat16. Gradients of weights leave a
layer as float32, so whatever adds them up, clips them and steps by them knows of nothing else.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from htsrl.config import Network
from htsrl.errors import ConfigError
from htsrl.numerics import bfloat16_instructions
from htsrl.policies.choice import sees_images
from htsrl.policies.layers import ScalingConv2d
from htsrl.spaces import ObservationLeaf

HALF = torch.bfloat16
BITS = torch.int16
"""What NumPy and the storages take numbers of bfloat16 for."""

Product = nn.Conv2d | nn.Linear


class Halves(NamedTuple):
    """A layer's weight, scaled where it scales, and bias."""

    weight: Tensor
    bias: Tensor


def chosen_precision(leaves: Mapping[str, ObservationLeaf], network: Network) -> Literal["float32", "bfloat16"]:
    """What `auto` is on this CPU; ConfigError where nothing would be computed in bfloat16."""
    has_images = sees_images(leaves, network)
    if network.precision == "auto":
        return "bfloat16" if has_images and bfloat16_instructions() else "float32"
    if network.precision == "bfloat16" and not has_images:
        raise ConfigError(
            "precision=bfloat16 is for images seen by the Nature CNN or IMPALA's network, and there are none here: "
            "the products of other networks are too small to be faster in it; use precision=float32 or auto"
        )
    return network.precision


class HalfEncoder(nn.Module):
    """An encoder whose products may be in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.is_half = False
        self.products: tuple[Product, ...] = ()
        self._held: dict[Product, Halves] | None = None

    @abstractmethod
    def in_float32(self) -> Tensor:
        """The features of a blank image, by torch's own modules."""

    def find_products(self, is_half: bool) -> None:
        """To be called when all layers are there."""
        self.is_half = is_half
        self.products = tuple(m for m in self.modules() if isinstance(m, nn.Conv2d | nn.Linear))

    @torch.no_grad()
    def copies(self) -> dict[Product, Halves]:
        """The weights as they are now."""
        return {layer: _copy_of(layer) for layer in self.products}

    def halves(self) -> dict[Product, Halves] | None:
        """What its layers multiply by; None where they do so in float32."""
        if not self.is_half:
            return None
        return self._held or self.copies()

    def hold(self, copies: dict[Product, Halves] | None) -> None:
        """Have these multiplied by until told otherwise, whatever becomes of the weights; None: by the weights."""
        self._held = copies


def _copy_of(layer: Product) -> Halves:
    weight = layer.scaled_weight() if isinstance(layer, ScalingConv2d) else layer.weight
    assert layer.bias is not None
    return Halves(weight.to(HALF), layer.bias.to(HALF))


class HeldCopies:
    """Copies of the weights of some encoders, for those who ask several times while the weights stay as they are."""

    def __init__(self, encoders: Sequence[HalfEncoder]) -> None:
        self._copies = [(encoder, encoder.copies()) for encoder in encoders]

    @contextmanager
    def used(self) -> Iterator[None]:
        for encoder, copies in self._copies:
            encoder.hold(copies)
        try:
            yield
        finally:
            for encoder, _ in self._copies:
                encoder.hold(None)


def half_encoders(module: nn.Module) -> tuple[HalfEncoder, ...]:
    """Those within a module that multiply in bfloat16."""
    return tuple(m for m in module.modules() if isinstance(m, HalfEncoder) and m.is_half)


def compute_in_float32(module: nn.Module) -> None:
    """Have all its layers multiply in float32, by the same weights."""
    for encoder in half_encoders(module):
        encoder.is_half = False
