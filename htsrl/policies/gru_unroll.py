"""The GRU over whole sequences, with its derivatives by hand.

Letters of shapes: L steps, N sequences, I inputs, H units, G gates times units.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from htsrl.policies.unrolling import Hidden, buffers_of, by_step, opened, resets_of, tanh_slope


class GruUnroll(torch.autograd.Function):
    """The blocks are, in this order: reset gate, update gate, what the reset gate scales, candidate.

    `bias_reset` is what the product with the state is added to before it is scaled.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs_LNI: Tensor,
        state_NH: Tensor,
        begins_LN: Tensor,
        weight_input: Tensor,
        weight_state: Tensor,
        bias: Tensor,
        bias_reset: Tensor,
    ) -> Tensor:
        buffers, resets = buffers_of(_Buffers, begins_LN, weight_state), resets_of(begins_LN)
        with torch.inference_mode():
            buffers.project(inputs_LNI, weight_input, bias, bias_reset)
            buffers.unroll(state_NH, weight_state, resets)
        if any(ctx.needs_input_grad):
            ctx.resets = resets
            before_LNH, slopes = buffers.hidden.found_LNH.clone(), buffers.slopes(begins_LN)
            ctx.save_for_backward(inputs_LNI, weight_input, weight_state, before_LNH, *slopes)
        return buffers.hidden.left_by_all()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_outputs_LNH: Tensor) -> tuple[Tensor | None, ...]:
        inputs_LNI, weight_input, weight_state, before_LNH, slopes_LNG, kept_LNH = ctx.saved_tensors
        buffers = buffers_of(_GradBuffers, grad_outputs_LNH, weight_state)
        with torch.inference_mode():
            buffers.unroll(grad_outputs_LNH, slopes_LNG, kept_LNH, weight_state, ctx.resets)
        size, needs, grad_all = weight_state.shape[1], ctx.needs_input_grad, buffers.gates_LNG.flatten(0, 1)
        grad_products, grad_recalled = grad_all[:, : 3 * size], grad_all[:, 2 * size : 3 * size]
        grad_gates = torch.cat([grad_all[:, : 2 * size], grad_all[:, 3 * size :]], dim=1)
        return (
            (grad_gates @ weight_input).view_as(inputs_LNI) if needs[0] else None,
            None,
            None,
            grad_gates.t() @ inputs_LNI.flatten(0, 1) if needs[3] else None,
            grad_products.t() @ before_LNH.flatten(0, 1) if needs[4] else None,
            grad_gates.sum(0) if needs[5] else None,
            grad_recalled.sum(0) if needs[6] else None,
        )


def gru_base(inputs_NI: Tensor, weight_input: Tensor, bias: Tensor, bias_reset: Tensor) -> Tensor:
    """What does not depend on the state: reset gate, update gate, what is added to the state's part, candidate."""
    size = len(bias_reset)
    gates_NG = linear(inputs_NI, weight_input, bias)
    open_NG, candidate_NH = gates_NG[:, : 2 * size], gates_NG[:, 2 * size :]
    return torch.cat([open_NG, bias_reset.expand_as(candidate_NH), candidate_NH], dim=1)


class _Buffers:
    """A step's row: the four blocks."""

    def __init__(self, zeros_LNH: Tensor) -> None:
        size = zeros_LNH.shape[-1]
        self._gates_LNG = torch.cat([zeros_LNH] * 4, dim=-1)
        self._open_LNG, products_LNG = self._gates_LNG[..., : 2 * size], self._gates_LNG[..., : 3 * size]
        self._blocks = self._gates_LNG.chunk(4, dim=-1)
        self.hidden = Hidden(zeros_LNH)
        hidden = self.hidden.found_LNH, self.hidden.left_LNH
        self._steps = by_step(products_LNG, self._open_LNG, *self._blocks, *hidden)

    def project(self, inputs_LNI: Tensor, weight_input: Tensor, bias: Tensor, bias_reset: Tensor) -> None:
        """Halved where it goes into a sigmoid; so is, below, the weight."""
        base_NG = gru_base(inputs_LNI.flatten(0, 1), weight_input, bias, bias_reset)
        self._gates_LNG.flatten(0, 1).copy_(base_NG)
        self._open_LNG.mul_(0.5)

    def unroll(self, state_NH: Tensor, weight_state: Tensor, resets: Mapping[int, Tensor]) -> None:
        weight_HG = weight_state.t().contiguous()
        weight_HG[:, : self._open_LNG.shape[-1]].mul_(0.5)
        self.hidden.begin(state_NH)
        for t, (products, open_gates, reset, update, recalled, candidate, before, after) in enumerate(self._steps):
            if t in resets:
                self.hidden.forget(t, resets[t])
            products.addmm_(before, weight_HG)
            opened(open_gates.tanh_(), out=open_gates)
            candidate.addcmul_(reset, recalled).tanh_()
            torch.lerp(candidate, before, update, out=after)

    def slopes(self, begins_LN: Tensor) -> tuple[Tensor, Tensor]:
        """Of the outputs by each block's input, and by the state before."""
        reset_LNH, update_LNH, recalled_LNH, candidate_LNH = self._blocks
        by_candidate_LNH = tanh_slope(candidate_LNH).mul_(1 - update_LNH)
        by_recalled_LNH = by_candidate_LNH * reset_LNH
        open_slopes_LNG = torch.addcmul(self._open_LNG, self._open_LNG, self._open_LNG, value=-1)
        by_reset_LNH, by_update_LNH = open_slopes_LNG.chunk(2, dim=-1)
        by_reset_LNH.mul_(recalled_LNH).mul_(by_candidate_LNH)
        by_update_LNH.mul_(self.hidden.found_LNH - candidate_LNH)
        slopes_LNG = torch.cat([open_slopes_LNG, by_recalled_LNH, by_candidate_LNH], dim=-1)
        return slopes_LNG, update_LNH.masked_fill(begins_LN[..., None], 0)


class _GradBuffers:
    """A step's row: the gradients of the four blocks."""

    def __init__(self, zeros_LNH: Tensor) -> None:
        self._rows_LN4H = torch.stack([zeros_LNH] * 4, dim=2)
        self.gates_LNG = self._rows_LN4H.flatten(2)
        self._grad_LNH, self._kept_LNH = zeros_LNH.clone(), zeros_LNH.clone()
        products_LNG = self.gates_LNG[..., : 3 * zeros_LNH.shape[-1]]
        grads = self._grad_LNH, self._grad_LNH[:, :, None]
        steps = by_step(self._rows_LN4H, products_LNG, *grads, self._kept_LNH)
        self._steps_from_the_end = list(enumerate(steps))[::-1]

    def unroll(
        self,
        grad_outputs_LNH: Tensor,
        slopes_LNG: Tensor,
        kept_LNH: Tensor,
        weight_state: Tensor,
        resets: Mapping[int, Tensor],
    ) -> None:
        """The slopes become gradients in place, step by step."""
        self._grad_LNH.copy_(grad_outputs_LNH)
        self.gates_LNG.copy_(slopes_LNG)
        self._kept_LNH.copy_(kept_LNH)
        later: tuple[Tensor, Tensor, Tensor] | None = None
        for t, (row_N4H, products_NG, grad_NH, grad_N1H, kept_NH) in self._steps_from_the_end:
            if later is not None:
                later_grad_NH, later_kept_NH, later_products_NG = later
                grad_NH.addcmul_(later_grad_NH, later_kept_NH).addmm_(later_products_NG, weight_state)
            row_N4H.mul_(grad_N1H)
            later = grad_NH, kept_NH, products_NG.masked_fill(resets[t], 0) if t in resets else products_NG
