"""Recurrent cores of either kind, sequences at random for them, and what their steps make of one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from htsrl.policies.recurrent import Gru, Lstm, RecurrentCore

KINDS = pytest.mark.parametrize("kind", [Lstm, Gru])


def core_of(kind: type[RecurrentCore], num_inputs: int, size: int, seed: int = 0) -> RecurrentCore:
    """With a bias that is not zero anywhere, for it could hide mistakes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        core = kind(num_inputs, size)
        with torch.no_grad():
            for name, parameter in core.named_parameters():
                if name.startswith("bias"):
                    parameter.normal_()
    return core


class Sequences:
    """Random inputs, states and beginnings of episodes, some at the first step."""

    def __init__(
        self, core: RecurrentCore, length: int, num_rows: int, seed: int = 1, share_of_begins: float = 0.2
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        weight = core.weight_input
        shape = (length, num_rows)
        self.inputs = torch.randn(*shape, weight.shape[1], generator=generator, dtype=weight.dtype) * 2
        self.state = torch.randn(num_rows, core.state_size, generator=generator, dtype=weight.dtype)
        self.begins = torch.rand(shape, generator=generator) < share_of_begins
        self.grad_outputs = torch.randn(*shape, core.num_features, generator=generator, dtype=weight.dtype)


def step_by_step(core: RecurrentCore, inputs: Tensor, state: Tensor, begins: Tensor) -> Tensor:
    outputs = []
    for t in range(len(inputs)):
        output, state = core.step(inputs[t], torch.where(begins[t, :, None], 0.0, state))
        outputs.append(output)
    return torch.stack(outputs)
