"""Recurrent cores unrolled over sequences, with their derivatives by hand.

Letters of shapes: L steps, N sequences, I inputs, H units, G gates times units, S numbers of state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

HALF = torch.tensor(0.5)


class LstmUnroll(torch.autograd.Function):
    """A small operation, or view, costs what calling for it costs: a step has few, on buffers made beforehand."""

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
        size = weight_state.shape[1]
        gates_LNG = linear(inputs_LNI.flatten(0, 1), weight_input, bias).view(*begins_LN.shape, 4 * size)
        halved_weight_HG = _halve_first(3 * size, gates_LNG, weight_state).t()
        cells_LNH, outputs_LNH = (gates_LNG.new_empty(*begins_LN.shape, size) for _ in range(2))
        now_NG = torch.empty_like(gates_LNG[0])
        open_NG, (output_NH, input_NH, forget_NH, candidate_NH) = now_NG[:, : 3 * size], now_NG.chunk(4, dim=1)
        before_NH, cell_before_NH = state_NS.chunk(2, dim=1)
        resets_L = _resets(begins_LN)
        for gates_NG, cell_NH, hidden_NH, reset_N1 in _steps(gates_LNG, cells_LNH, outputs_LNH, resets_L=resets_L):
            if reset_N1 is not None:
                before_NH, cell_before_NH = (x.masked_fill(reset_N1, 0) for x in (before_NH, cell_before_NH))
            torch.addmm(gates_NG, before_NH, halved_weight_HG, out=now_NG).tanh_()
            torch.add(HALF, open_NG, alpha=0.5, out=open_NG)
            torch.mul(forget_NH, cell_before_NH, out=cell_NH).addcmul_(input_NH, candidate_NH)
            torch.tanh(cell_NH, out=hidden_NH).mul_(output_NH)
            gates_NG.copy_(now_NG)
            before_NH, cell_before_NH = hidden_NH, cell_NH
        ctx.resets_L = resets_L
        ctx.save_for_backward(
            inputs_LNI, state_NS, begins_LN, weight_input, weight_state, gates_LNG, cells_LNH, outputs_LNH
        )
        return outputs_LNH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_outputs_LNH: Tensor) -> tuple[Tensor | None, ...]:
        inputs_LNI, state_NS, begins_LN, weight_input, weight_state, gates_LNG, cells_LNH, outputs_LNH = (
            ctx.saved_tensors
        )
        size = weight_state.shape[1]
        hidden_NH, cell_NH = state_NS.chunk(2, dim=1)
        cells_before_LNH = _before(cell_NH, cells_LNH, begins_LN)
        # The gates' slopes become their gradients in place, step by step.
        grad_gates_LNG, cell_slopes_LNH = _lstm_slopes(gates_LNG, cells_LNH, cells_before_LNH, outputs_LNH)
        kept_LNH = gates_LNG[..., 2 * size : 3 * size].masked_fill(begins_LN[..., None], 0)
        # Columns as the gates': the hidden numbers' gradient, then three times the cells'.
        factors_NG = torch.zeros_like(grad_gates_LNG[0])
        grad_hidden_NH, grad_cell_NH, *_ = factors_NG.chunk(4, dim=1)
        grad_cell_N1H, cell_copies_N2H = factors_NG.view(-1, 4, size)[:, 1:2], factors_NG.view(-1, 4, size)[:, 2:]
        later_NG = torch.zeros_like(factors_NG)
        for grad_output_NH, gates_NG, cell_slope_NH, kept_NH, reset_N1 in _steps(
            grad_outputs_LNH, grad_gates_LNG, cell_slopes_LNH, kept_LNH, resets_L=ctx.resets_L, backwards=True
        ):
            torch.addmm(grad_output_NH, later_NG, weight_state, out=grad_hidden_NH)
            grad_cell_NH.addcmul_(grad_hidden_NH, cell_slope_NH)
            cell_copies_N2H.copy_(grad_cell_N1H)
            gates_NG.mul_(factors_NG)
            grad_cell_NH.mul_(kept_NH)
            later_NG = gates_NG if reset_N1 is None else gates_NG.masked_fill(reset_N1, 0)
        needs = ctx.needs_input_grad
        grad_gates = grad_gates_LNG.flatten(0, 1)
        return (
            (grad_gates @ weight_input).view_as(inputs_LNI) if needs[0] else None,
            None,
            None,
            grad_gates.t() @ inputs_LNI.flatten(0, 1) if needs[3] else None,
            grad_gates.t() @ _before(hidden_NH, outputs_LNH, begins_LN).flatten(0, 1) if needs[4] else None,
            grad_gates.sum(0) if needs[5] else None,
        )


class GruUnroll(torch.autograd.Function):
    """The same for the GRU, whose `bias_reset` the product with the state is added to before the reset gate."""

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
        size = weight_state.shape[1]
        gates_LNG = gru_base(inputs_LNI.flatten(0, 1), weight_input, bias, bias_reset).view(*begins_LN.shape, 4 * size)
        halved_weight_HG = _halve_first(2 * size, gates_LNG, weight_state).t()
        outputs_LNH = gates_LNG.new_empty(*begins_LN.shape, size)
        now_NG = torch.empty_like(gates_LNG[0])
        product_NG, open_NG = now_NG[:, : 3 * size], now_NG[:, : 2 * size]
        reset_NH, update_NH, recalled_NH, candidate_NH = now_NG.chunk(4, dim=1)
        difference_NH = torch.empty_like(outputs_LNH[0])
        before_NH = state_NH
        resets_L = _resets(begins_LN)
        for gates_NG, hidden_NH, reset_N1 in _steps(gates_LNG, outputs_LNH, resets_L=resets_L):
            if reset_N1 is not None:
                before_NH = before_NH.masked_fill(reset_N1, 0)
            now_NG.copy_(gates_NG)
            product_NG.addmm_(before_NH, halved_weight_HG)
            torch.add(HALF, open_NG.tanh_(), alpha=0.5, out=open_NG)
            candidate_NH.addcmul_(reset_NH, recalled_NH).tanh_()
            torch.sub(before_NH, candidate_NH, out=difference_NH)
            torch.addcmul(candidate_NH, update_NH, difference_NH, out=hidden_NH)
            gates_NG.copy_(now_NG)
            before_NH = hidden_NH
        ctx.resets_L = resets_L
        ctx.save_for_backward(inputs_LNI, state_NH, begins_LN, weight_input, weight_state, gates_LNG, outputs_LNH)
        return outputs_LNH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_outputs_LNH: Tensor) -> tuple[Tensor | None, ...]:
        inputs_LNI, state_NH, begins_LN, weight_input, weight_state, gates_LNG, outputs_LNH = ctx.saved_tensors
        size = weight_state.shape[1]
        before_LNH = _before(state_NH, outputs_LNH, begins_LN)
        grad_gates_LNG = _gru_slopes(gates_LNG, before_LNH)
        kept_LNH = gates_LNG[..., size : 2 * size].masked_fill(begins_LN[..., None], 0)
        grad_NH = torch.zeros_like(kept_LNH[0])
        grad_N1H = grad_NH[:, None]
        kept_later_NH, later_NG = grad_NH, torch.zeros_like(grad_gates_LNG[0, :, : 3 * size])
        for grad_output_NH, gates_N4H, products_NG, kept_NH, reset_N1 in _steps(
            grad_outputs_LNH,
            grad_gates_LNG.view(*begins_LN.shape, 4, size),
            grad_gates_LNG[..., : 3 * size],
            kept_LNH,
            resets_L=ctx.resets_L,
            backwards=True,
        ):
            torch.addcmul(grad_output_NH, grad_NH, kept_later_NH, out=grad_NH).addmm_(later_NG, weight_state)
            gates_N4H.mul_(grad_N1H)
            kept_later_NH = kept_NH
            later_NG = products_NG if reset_N1 is None else products_NG.masked_fill(reset_N1, 0)
        needs = ctx.needs_input_grad
        grad_all = grad_gates_LNG.flatten(0, 1)
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


def _halve_first(num_columns: int, gates_LNG: Tensor, weight_GH: Tensor) -> Tensor:
    """Halves what goes into a sigmoid, once for all steps: the gates' inputs in place, the weight in a copy."""
    gates_LNG[..., :num_columns].mul_(0.5)
    halved_GH = weight_GH.clone()
    halved_GH[:num_columns].mul_(0.5)
    return halved_GH


def gru_base(inputs_NI: Tensor, weight_input: Tensor, bias: Tensor, bias_reset: Tensor) -> Tensor:
    """What does not depend on the state: reset gate, update gate, what is added to the state's part, candidate."""
    size = len(bias_reset)
    gates_NG = linear(inputs_NI, weight_input, bias)
    open_NG, candidate_NH = gates_NG[:, : 2 * size], gates_NG[:, 2 * size :]
    return torch.cat([open_NG, bias_reset.expand_as(candidate_NH), candidate_NH], dim=1)


def _resets(begins_LN: Tensor) -> list[Tensor | None]:
    """For each step the rows whose state is zero before it, or None if there are none."""
    return [begins_LN[t, :, None] if some else None for t, some in enumerate(begins_LN.any(dim=1).tolist())]


def _steps(*sequences: Tensor, resets_L: list[Tensor | None], backwards: bool = False) -> Iterator[Any]:
    """The steps' parts of each sequence, and their resets."""
    lists = [*(sequence.unbind() for sequence in sequences), resets_L]
    return zip(*(reversed(each) for each in lists) if backwards else lists, strict=True)


def _before(first_NH: Tensor, sequence_LNH: Tensor, begins_LN: Tensor) -> Tensor:
    """What each step found."""
    return torch.cat([first_NH[None], sequence_LNH[:-1]]).masked_fill_(begins_LN[..., None], 0)


def _lstm_slopes(
    gates_LNG: Tensor, cells_LNH: Tensor, cells_before_LNH: Tensor, outputs_LNH: Tensor
) -> tuple[Tensor, Tensor]:
    """Of the outputs (first block) or cells by each gate's input, and of the outputs by the cells."""
    size = cells_LNH.shape[-1]
    tanh_LNH = torch.tanh(cells_LNH)
    output_LNH, input_LNH, _, candidate_LNH = gates_LNG.chunk(4, dim=-1)
    slopes_LNG = torch.cat([tanh_LNH, candidate_LNH, cells_before_LNH, input_LNH], dim=-1)
    slopes_LNG[..., : 3 * size].mul_(_sigmoid_slope(gates_LNG[..., : 3 * size]))
    slopes_LNG[..., 3 * size :].mul_(_tanh_slope(candidate_LNH))
    return slopes_LNG, torch.addcmul(output_LNH, outputs_LNH, tanh_LNH, value=-1)


def _gru_slopes(gates_LNG: Tensor, before_LNH: Tensor) -> Tensor:
    """Of the outputs by the inputs of: reset gate, update gate, what the reset gate scales, candidate."""
    reset_LNH, update_LNH, recalled_LNH, candidate_LNH = gates_LNG.chunk(4, dim=-1)
    by_candidate_LNH = (1 - update_LNH).mul_(_tanh_slope(candidate_LNH))
    by_recalled_LNH = by_candidate_LNH * reset_LNH
    by_reset_LNH = _sigmoid_slope(reset_LNH).mul_(recalled_LNH).mul_(by_candidate_LNH)
    by_update_LNH = _sigmoid_slope(update_LNH).mul_(before_LNH - candidate_LNH)
    return torch.cat([by_reset_LNH, by_update_LNH, by_recalled_LNH, by_candidate_LNH], dim=-1)


def _sigmoid_slope(sigmoid: Tensor) -> Tensor:
    return torch.addcmul(sigmoid, sigmoid, sigmoid, value=-1)


def _tanh_slope(tanh: Tensor) -> Tensor:
    return 1 - tanh * tanh
