"""Recurrent cores of either kind, sequences at random for them, and what their steps make of one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from htsrl.policies.memory import Gru, Lstm, Memory

KINDS = pytest.mark.parametrize("kind", [Lstm, Gru])


def memory_of(kind: type[Memory], num_inputs: int, size: int, seed: int = 0) -> Memory:
    """With a bias that is not zero anywhere, for it could hide mistakes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        memory = kind(num_inputs, size)
        with torch.no_grad():
            for name, parameter in memory.named_parameters():
                if name.startswith("bias"):
                    parameter.normal_()
    return memory


class Sequences:
    """Random inputs, states and beginnings of episodes, some at the first step."""

    def __init__(self, memory: Memory, length: int, num_rows: int, seed: int = 1, share_of_begins: float = 0.2) -> None:
        generator = torch.Generator().manual_seed(seed)
        weight = memory.weight_input
        shape = (length, num_rows)
        self.inputs = torch.randn(*shape, weight.shape[1], generator=generator, dtype=weight.dtype) * 2
        self.state = torch.randn(num_rows, memory.state_size, generator=generator, dtype=weight.dtype)
        self.begins = torch.rand(shape, generator=generator) < share_of_begins
        self.grad_outputs = torch.randn(*shape, memory.num_features, generator=generator, dtype=weight.dtype)


def step_by_step(memory: Memory, inputs: Tensor, state: Tensor, begins: Tensor) -> Tensor:
    outputs = []
    for t in range(len(inputs)):
        output, state = memory.step(inputs[t], torch.where(begins[t, :, None], 0.0, state))
        outputs.append(output)
    return torch.stack(outputs)
