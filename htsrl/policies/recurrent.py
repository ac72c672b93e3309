"""Recurrent cores: one step at a time for actors, whole sequences for the learner, with the same bits.

torch's sigmoid gives the last few numbers of an array other bits than the rest, so that a row's would depend on its
place in the batch; `tanh` does not, and sigmoid(x) = tanh(x / 2) / 2 + 1 / 2, in which halving is exact.

Letters of shapes: L steps, N sequences, I inputs, H units, G gates times units, S numbers of state.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from htsrl.policies.gru_unroll import GruUnroll, gru_base
from htsrl.policies.lstm_unroll import LstmUnroll, lstm_cell

MAX_TIME_CONSTANT = 100.0
"""Steps after which the most patient unit has forgotten to a share of 1/e, before anything is learned."""


class Lstm(nn.Module):
    """Long short-term memory (https://doi.org/10.1162/neco.1997.9.8.1735) with a forget gate.

    The gates' blocks in weights and bias are, in this order: output, input, forget, candidate.
    """

    def __init__(self, num_inputs: int, size: int) -> None:
        super().__init__()
        self.num_features = size
        self.state_size = 2 * size
        self.weight_input = _orthogonal_blocks(4, size, num_inputs)
        self.weight_state = _orthogonal_blocks(4, size, size)
        openness = _openness(size)
        self.bias = nn.Parameter(torch.cat([torch.zeros(size), -openness, openness, torch.zeros(size)]))

    def step(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """`[N, I]` and the state before -> outputs `[N, H]` and the state after (hidden, then cell)."""
        hidden_NH, cell_NH = state.chunk(2, dim=1)
        gates_NG = torch.addmm(linear(inputs, self.weight_input, self.bias), hidden_NH, self.weight_state.t())
        hidden_NH, cell_NH = lstm_cell(gates_NG, cell_NH)
        return hidden_NH, torch.cat([hidden_NH, cell_NH], dim=1)

    def unroll(self, inputs: Tensor, state: Tensor, begins: Tensor) -> Tensor:
        """`[L, N, I]` -> `[L, N, H]` from the state before the first step, which is zero where an episode begins.

        Gradients flow into inputs and parameters, through time up to the beginning of the episode.
        """
        outputs_LNH: Tensor = LstmUnroll.apply(  # type: ignore[no-untyped-call]
            inputs, state.detach(), begins, self.weight_input, self.weight_state, self.bias
        )
        return outputs_LNH


class Gru(nn.Module):
    """Gated recurrent unit (https://arxiv.org/abs/1406.1078), its reset gate after the product with the state.

    The gates' blocks in weights and bias are, in this order: reset, update, candidate; `bias_reset` is what the reset
    gate scales along with the state's part of the candidate.
    """

    def __init__(self, num_inputs: int, size: int) -> None:
        super().__init__()
        self.num_features = size
        self.state_size = size
        self.weight_input = _orthogonal_blocks(3, size, num_inputs)
        self.weight_state = _orthogonal_blocks(3, size, size)
        self.bias = nn.Parameter(torch.cat([torch.zeros(size), _openness(size), torch.zeros(size)]))
        self.bias_reset = nn.Parameter(torch.zeros(size))

    def step(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """`[N, I]` and the state before -> outputs `[N, H]`, which are also the state after."""
        base_NG = gru_base(inputs, self.weight_input, self.bias, self.bias_reset)
        gates_NG = torch.addmm(base_NG[:, : 3 * self.num_features], state, self.weight_state.t())
        reset_NH, update_NH = _sigmoid(gates_NG[:, : 2 * self.num_features]).chunk(2, dim=1)
        recalled_NH = gates_NG[:, 2 * self.num_features :]
        candidate_NH = torch.tanh(torch.addcmul(base_NG[:, 3 * self.num_features :], reset_NH, recalled_NH))
        outputs_NH = torch.lerp(candidate_NH, state, update_NH)
        return outputs_NH, outputs_NH

    def unroll(self, inputs: Tensor, state: Tensor, begins: Tensor) -> Tensor:
        """`[L, N, I]` -> `[L, N, H]` from the state before the first step, which is zero where an episode begins.

        Gradients flow into inputs and parameters, through time up to the beginning of the episode.
        """
        outputs_LNH: Tensor = GruUnroll.apply(  # type: ignore[no-untyped-call]
            inputs, state.detach(), begins, self.weight_input, self.weight_state, self.bias, self.bias_reset
        )
        return outputs_LNH


RecurrentCore = Lstm | Gru


def _openness(size: int) -> Tensor:
    """Biases of the gates that keep what is remembered: units forget at rates from every second step to hardly ever.

    The idea is https://arxiv.org/abs/1804.11188; here the times are spread evenly by their logarithm.
    """
    # The device is named: where transformers has loaded a model first, torch.linspace is left out of device contexts.
    return torch.linspace(0.0, math.log(MAX_TIME_CONSTANT - 1), size, device=torch.get_default_device())


def _orthogonal_blocks(num_blocks: int, size: int, width: int) -> nn.Parameter:
    return nn.Parameter(torch.cat([nn.init.orthogonal_(torch.empty(size, width)) for _ in range(num_blocks)]))


def _sigmoid(x: Tensor) -> Tensor:
    return 0.5 * torch.tanh(0.5 * x) + 0.5
