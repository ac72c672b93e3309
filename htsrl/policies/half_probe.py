"""Sums that cancel, by which the probe finds out what rounding to bfloat16 hides.

A sum in float32 that is rounded to bfloat16 keeps eight of its twenty-four bits, so two orders of summation seldom show
in a layer's output: of one frame perhaps, in thousands. Where all terms of a sum come in pairs of opposite sign,
nothing is left of it but what was rounded off on the way, and every order of summation leaves something else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, linear

from htsrl.policies.half_precision import BITS, HALF, HalfEncoder, Product, half_encoders

PREFIX = "cancelling/"
HASH_SIZE = 1 << 24
"""What float32 holds exactly."""

Outputs = Callable[[Mapping[str, Tensor]], Tensor]


def with_cancelling_sums(
    policy: nn.Module, outputs: Outputs, examples: Mapping[str, Tensor]
) -> tuple[Outputs, Mapping[str, Tensor]]:
    """The same question asked of every layer of the policy that multiplies in bfloat16, too."""
    sums = [_CancellingSum(layer, shape) for encoder in half_encoders(policy) for layer, shape in _inputs_of(encoder)]
    if not sums:
        return outputs, examples
    num_rows = len(next(iter(examples.values())))
    drawn = {f"{PREFIX}{i}": of_layer.rows(num_rows, seed=i) for i, of_layer in enumerate(sums)}

    def all_outputs(inputs: Mapping[str, Tensor]) -> Tensor:
        seen = {name: x for name, x in inputs.items() if name not in drawn}
        found = [of_layer(inputs[name]) for name, of_layer in zip(drawn, sums, strict=True)]
        return torch.cat([outputs(seen), torch.stack(found, dim=1)], dim=1)

    return all_outputs, {**examples, **drawn}


class _CancellingSum:
    """A layer of this shape, by weights of its own whose second half of the channels undoes the first."""

    def __init__(self, layer: Product, shape: torch.Size) -> None:
        self._shape = shape
        self._layer = layer
        weight = _wild(layer.weight.shape, seed=1)
        half = shape[0] // 2
        weight[:, half : 2 * half] = -weight[:, :half]
        self._weight = self._laid_out(weight.to(HALF))
        self._bias = torch.zeros(len(weight), dtype=HALF)

    def rows(self, num_rows: int, seed: int) -> Tensor:
        x = _wild((num_rows, *self._shape), seed)
        half = self._shape[0] // 2
        x[:, half : 2 * half] = x[:, :half]
        return x.to(HALF)

    def __call__(self, x: Tensor) -> Tensor:
        """A number for each row, that differs where any bit of its outputs does."""
        x = self._laid_out(x)
        if isinstance(self._layer, nn.Linear):
            made = linear(x, self._weight, self._bias)
        else:
            stride, padding = self._layer.stride, self._layer.padding
            made = conv2d(x, self._weight, self._bias, stride, padding)
        bits = made.flatten(1).contiguous().view(BITS).long()
        places = torch.arange(1, 2 * bits.shape[1], 2)
        # Of integers, for which no order of summation matters.
        return ((bits * places).sum(dim=1) % HASH_SIZE).float()

    @staticmethod
    def _laid_out(x: Tensor) -> Tensor:
        return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def _wild(shape: tuple[int, ...], seed: int) -> Tensor:
    """Numbers of very different sizes, so that much is rounded off."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator) * 2.0 ** torch.randint(-8, 9, shape, generator=generator)


def _inputs_of(encoder: HalfEncoder) -> list[tuple[Product, torch.Size]]:
    """Its layers, and the shape of a row that each is given."""
    found: list[tuple[Product, torch.Size]] = []

    def note(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(layer, Product)
        found.append((layer, inputs[0].shape[1:]))

    hooks = [layer.register_forward_pre_hook(note) for layer in encoder.products]
    try:
        encoder.in_float32()
    finally:
        for hook in hooks:
            hook.remove()
    return found
