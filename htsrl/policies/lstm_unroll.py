"""The LSTM over whole sequences, with its derivatives by hand.

Letters of shapes: L steps, N sequences, I inputs, H units, G gates times units, S numbers of state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from htsrl.policies.unrolling import Hidden, buffers_of, by_step, opened, resets_of, tanh_slope


def lstm_cell(gates_NG: Tensor, cell_NH: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden numbers and cell after a step, from the gates' inputs: output, input, forget, candidate.

    Written as the unroll computes it, which knows the gates only as 1 + tanh: that is twice what they are open.
    """
    size = cell_NH.shape[1]
    open_NG = torch.tanh(0.5 * gates_NG[:, : 3 * size])
    let_in_NG = torch.cat([torch.tanh(gates_NG[:, 3 * size :]), cell_NH], dim=1)
    from_candidate_NH, from_cell_NH = torch.addcmul(let_in_NG, open_NG[:, size:], let_in_NG).chunk(2, dim=1)
    cell_NH = torch.lerp(from_candidate_NH, from_cell_NH, 0.5)
    tanh_NH = torch.tanh(cell_NH)
    return 0.5 * torch.addcmul(tanh_NH, open_NG[:, :size], tanh_NH), cell_NH


class LstmUnroll(torch.autograd.Function):
    """Blocks as above."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs_LNI: Tensor,
        state_NS: Tensor,
        begins_LN: Tensor,
        weight_input: Tensor,
        weight_state: Tensor,
        bias: Tensor,
    ) -> Tensor:
        buffers, resets = buffers_of(_Buffers, begins_LN, weight_state), resets_of(begins_LN)
        with torch.inference_mode():
            buffers.project(inputs_LNI, weight_input, bias)
            buffers.unroll(state_NS, weight_state, resets)
        outputs_LNH = buffers.doubled.left_by_all().mul_(0.5)
        if any(ctx.needs_input_grad):
            ctx.resets = resets
            before_LNH, slopes = buffers.doubled.found_LNH * 0.5, buffers.slopes(outputs_LNH, begins_LN)
            ctx.save_for_backward(inputs_LNI, weight_input, weight_state, before_LNH, *slopes)
        return outputs_LNH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_outputs_LNH: Tensor) -> tuple[Tensor | None, ...]:
        inputs_LNI, weight_input, weight_state, before_LNH, slopes_LNG, by_cell_LNH = ctx.saved_tensors
        buffers = buffers_of(_GradBuffers, grad_outputs_LNH, weight_state)
        with torch.inference_mode():
            buffers.unroll(grad_outputs_LNH, slopes_LNG, by_cell_LNH, weight_state, ctx.resets)
        needs, grad_gates = ctx.needs_input_grad, buffers.gates_LNG.flatten(0, 1)
        return (
            (grad_gates @ weight_input).view_as(inputs_LNI) if needs[0] else None,
            None,
            None,
            grad_gates.t() @ inputs_LNI.flatten(0, 1) if needs[3] else None,
            grad_gates.t() @ before_LNH.flatten(0, 1) if needs[4] else None,
            grad_gates.sum(0) if needs[5] else None,
        )


class _Buffers:
    """A step's row: four blocks of gates, then the cell before it. Hidden numbers are kept doubled."""

    def __init__(self, zeros_LNH: Tensor) -> None:
        size = zeros_LNH.shape[-1]
        rows = torch.cat([torch.cat([zeros_LNH, zeros_LNH[:1]])] * 5, dim=-1)
        self._gates_LNG, self._cells_LNH = rows[:-1, :, : 4 * size], rows[:-1, :, 4 * size :]
        self._open_LNG, self._others_LNG = rows[:-1, :, : 3 * size], rows[:-1, :, size : 3 * size]
        self._let_in_LNG, self._output_LNH = rows[:-1, :, 3 * size :], rows[:-1, :, :size]
        self._tanh_LNH = torch.zeros_like(zeros_LNH)
        self._products_NG = torch.cat([zeros_LNH[0]] * 2, dim=-1)
        self.doubled = Hidden(zeros_LNH)
        self._steps = by_step(
            self._gates_LNG,
            self._others_LNG,
            self._let_in_LNG,
            self._output_LNH,
            self._tanh_LNH,
            rows[1:, :, 4 * size :],
            self.doubled.found_LNH,
            self.doubled.left_LNH,
        )

    def project(self, inputs_LNI: Tensor, weight_input: Tensor, bias: Tensor) -> None:
        """Halved where it goes into a sigmoid; so is, below, the weight, and once more for the doubled numbers."""
        torch.addmm(bias, inputs_LNI.flatten(0, 1), weight_input.t(), out=self._gates_LNG.flatten(0, 1))
        self._open_LNG.mul_(0.5)

    def unroll(self, state_NS: Tensor, weight_state: Tensor, resets: Mapping[int, Tensor]) -> None:
        weight_HG = weight_state.t() * 0.5
        weight_HG[:, : self._open_LNG.shape[-1]].mul_(0.5)
        hidden_NH, cell_NH = state_NS.chunk(2, dim=1)
        self.doubled.begin(hidden_NH * 2)
        self._cells_LNH[0].copy_(cell_NH)
        products_NG = self._products_NG
        from_candidate_NH, from_cell_NH = products_NG.chunk(2, dim=1)
        for t, (gates, others, let_in, output, tanh, cell, before, after) in enumerate(self._steps):
            if t in resets:
                self.doubled.forget(t, resets[t])
                self._cells_LNH[t].masked_fill_(resets[t], 0)
            gates.addmm_(before, weight_HG).tanh_()
            torch.addcmul(let_in, others, let_in, out=products_NG)
            torch.lerp(from_candidate_NH, from_cell_NH, 0.5, out=cell)
            torch.addcmul(torch.tanh(cell, out=tanh), output, tanh, out=after)

    def slopes(self, outputs_LNH: Tensor, begins_LN: Tensor) -> tuple[Tensor, Tensor]:
        """Of the outputs (first block) or cells by each gate's input and of the next cells; of the outputs by cells."""
        size = outputs_LNH.shape[-1]
        output_LNH, input_LNH, forget_LNH = opened(self._open_LNG).chunk(3, dim=-1)
        slopes_LNG = tanh_slope(self._gates_LNG)
        slopes_LNG[..., : 3 * size].mul_(0.25)
        slopes_LNG[..., :size].mul_(self._tanh_LNH)
        slopes_LNG[..., size : 3 * size].mul_(self._let_in_LNG)
        slopes_LNG[..., 3 * size :].mul_(input_LNH)
        kept_LNH = forget_LNH.masked_fill(begins_LN[..., None], 0)
        by_cell_LNH = torch.addcmul(output_LNH, outputs_LNH, self._tanh_LNH, value=-1)
        return torch.cat([slopes_LNG, kept_LNH], dim=-1), by_cell_LNH


class _GradBuffers:
    """A step's row: the gradients of four blocks of gates, then what of the cell's goes to the step before."""

    def __init__(self, zeros_LNH: Tensor) -> None:
        self._rows_LN5H = torch.stack([zeros_LNH] * 5, dim=2)
        self.gates_LNG = self._rows_LN5H[:, :, :4].flatten(2)
        self._outputs_LNH, self._by_cell_LN1H = zeros_LNH.clone(), zeros_LNH.clone()[:, :, None]
        # What the blocks are to be multiplied by: the hidden numbers' gradient, then four times the cell's.
        self._factors_N5H = torch.zeros_like(self._rows_LN5H[0])
        self._after_the_last_N5H = torch.zeros_like(self._factors_N5H)
        cells_LN4H = self._rows_LN5H[:, :, 4:].expand(-1, -1, 4, -1)
        steps = by_step(self._rows_LN5H, self.gates_LNG, cells_LN4H, self._outputs_LNH, self._by_cell_LN1H)
        self._steps_from_the_end = list(enumerate(steps))[::-1]

    def unroll(
        self,
        grad_outputs_LNH: Tensor,
        slopes_LNG: Tensor,
        by_cell_LNH: Tensor,
        weight_state: Tensor,
        resets: Mapping[int, Tensor],
    ) -> None:
        """The slopes become gradients in place, step by step."""
        self._outputs_LNH.copy_(grad_outputs_LNH)
        self._rows_LN5H.flatten(2).copy_(slopes_LNG)
        self._by_cell_LN1H.squeeze(2).copy_(by_cell_LNH)
        factors_N5H = self._factors_N5H
        grad_NH, grad_N1H, grad_cell_N4H = factors_N5H[:, 0], factors_N5H[:, :1], factors_N5H[:, 1:]
        later_NG, later_cell_N4H = self._after_the_last_N5H[:, :4].flatten(1), self._after_the_last_N5H[:, 1:]
        for t, (row_N5H, gates_NG, cell_N4H, grad_output_NH, by_cell_N1H) in self._steps_from_the_end:
            torch.addmm(grad_output_NH, later_NG, weight_state, out=grad_NH)
            torch.addcmul(later_cell_N4H, grad_N1H, by_cell_N1H, out=grad_cell_N4H)
            row_N5H.mul_(factors_N5H)
            later_NG = gates_NG.masked_fill(resets[t], 0) if t in resets else gates_NG
            later_cell_N4H = cell_N4H
