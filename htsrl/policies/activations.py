"""Layers with their rectifiers, differentiated from what they gave, whoever computed that and when.

The delayed gradient is taken at the very parameters that acted, on the very observations that they saw: every layer has
already said what it makes of them. Where that was kept, an update has only the gradients left to compute.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, linear

from htsrl.policies.half_precision import Halves
from htsrl.policies.layers import ScalingConv2d

Stride = tuple[int, ...] | None
"""None for a fully connected layer."""

FIELD_PREFIX = "activations"


def rectified(
    layer: nn.Conv2d | nn.Linear, x: Tensor, kept: Tensor | None = None, halves: Halves | None = None
) -> Tensor:
    """The layer's output, zero where it is below: computed, unless it was `kept`. With `halves` it multiplies by those,
    and its gradients are those of the weights that they are copies of."""
    assert isinstance(layer, nn.Linear) or (layer.padding, layer.dilation, layer.groups) == ((0, 0), (1, 1), 1)
    weight = layer.scaled_weight() if isinstance(layer, ScalingConv2d) else layer.weight
    stride: Stride = layer.stride if isinstance(layer, nn.Conv2d) else None
    factor, bias = (weight, layer.bias) if halves is None else halves
    if kept is None:
        with torch.no_grad():
            given = linear(x, factor, bias) if stride is None else conv2d(x, factor, bias, stride)
            kept = given.relu_()
    if not torch.is_grad_enabled():
        return kept
    output: Tensor = _Rectified.apply(x, weight, layer.bias, factor, kept, stride)  # type: ignore[no-untyped-call]
    return output


class _Rectified(torch.autograd.Function):
    """What a layer and its rectifier gave, differentiated as autograd would, had it seen them compute it."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, factor: Tensor, kept: Tensor, stride: Stride
    ) -> Tensor:
        """`factor` is the weight, or a copy of it in bfloat16, which then is what everything is computed in."""
        ctx.save_for_backward(x, factor, kept)
        ctx.dtype = weight.dtype
        ctx.stride = stride
        return kept.view_as(kept)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, kept = ctx.saved_tensors
        dtype = ctx.dtype
        needs_x = ctx.needs_input_grad[0]
        # What comes from a fully connected layer has its channels first; number by number against the other order it
        # would take twice as long as with this copy.
        gradient = gradients[0].contiguous(memory_format=_order_of(kept))
        gradient = torch.ops.aten.threshold_backward(gradient, kept, 0)
        if ctx.stride is None:
            of_weight, of_bias = (gradient.t() @ x).to(dtype), gradient.sum(dim=0, dtype=dtype)
            return gradient @ weight if needs_x else None, of_weight, of_bias, None, None, None
        padding, dilation, transposed, output_padding, groups = (0, 0), (1, 1), False, (0, 0), 1
        how = ctx.stride, padding, dilation, transposed, output_padding, groups
        of_each = torch.ops.aten.convolution_backward(gradient, x, weight, [len(weight)], *how, (needs_x, True, True))
        of_x, of_weight, of_bias = of_each
        return of_x, of_weight.to(dtype), of_bias.to(dtype), None, None, None


def multiplied(layer: nn.Conv2d, x: Tensor, halves: Halves) -> Tensor:
    """What a convolution makes of numbers in bfloat16, with gradients of the weights that `halves` are copies of."""
    weight = layer.scaled_weight() if isinstance(layer, ScalingConv2d) else layer.weight
    output: Tensor = _Multiplied.apply(x, weight, layer.bias, *halves, layer.stride, layer.padding)  # type: ignore[no-untyped-call]
    return output


class _Multiplied(torch.autograd.Function):
    """A convolution by copies of its weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, *how: Any) -> Tensor:
        factor, half_bias, stride, padding = how
        ctx.save_for_backward(x, factor)
        ctx.stride, ctx.padding, ctx.dtype = stride, padding, weight.dtype
        return conv2d(x, factor, half_bias, stride, padding)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, factor = ctx.saved_tensors
        needs_x, dilation, transposed, output_padding, groups = ctx.needs_input_grad[0], (1, 1), False, (0, 0), 1
        gradient = gradients[0].contiguous(memory_format=torch.channels_last)
        of_x, of_weight, of_bias = torch.ops.aten.convolution_backward(
            gradient,
            x,
            factor,
            [len(factor)],
            ctx.stride,
            ctx.padding,
            dilation,
            transposed,
            output_padding,
            groups,
            (needs_x, True, True),
        )
        return of_x, of_weight.to(ctx.dtype), of_bias.to(ctx.dtype), None, None, None, None


def _order_of(x: Tensor) -> torch.memory_format:
    return torch.channels_last if x.dim() == 4 else torch.contiguous_format
