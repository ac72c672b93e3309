"""Recurrent cores: the same bits step by step and unrolled, a pencil's numbers, and how they begin."""

from __future__ import annotations

import math

import pytest
import torch
from helpers import assert_same_numbers
from recurrent_sequences import KINDS, Sequences, core_of, step_by_step
from torch import Tensor, nn
from torch.utils import _device as device_context

from htsrl.policies.recurrent import Gru, Lstm, RecurrentCore

SIZES = (5, 7, 64, 128)
NUM_ROWS = (1, 2, 3, 5, 16, 17)

pytestmark = pytest.mark.usefixtures("one_thread")


@KINDS
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("num_rows", NUM_ROWS)
def test_an_unroll_has_the_bits_of_its_steps(kind: type[RecurrentCore], size: int, num_rows: int) -> None:
    core = core_of(kind, 11, size)
    data = Sequences(core, 9, num_rows)
    unrolled = core.unroll(data.inputs, data.state, data.begins)
    with torch.inference_mode():
        assert_same_numbers(unrolled, step_by_step(core, data.inputs, data.state, data.begins))
        assert torch.equal(unrolled, core.unroll(data.inputs, data.state, data.begins))


@KINDS
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("num_rows", NUM_ROWS)
def test_a_row_has_the_same_bits_in_a_batch_of_any_size(kind: type[RecurrentCore], size: int, num_rows: int) -> None:
    core = core_of(kind, 11, size)
    data = Sequences(core, 6, 64)
    with torch.inference_mode():
        together = core.unroll(data.inputs, data.state, data.begins)
        for first in (0, 1, 37, 64 - num_rows):
            rows = slice(first, first + num_rows)
            some = data.inputs[:, rows], data.state[rows], data.begins[:, rows]
            assert_same_numbers(step_by_step(core, *some), together[:, rows])
            assert_same_numbers(core.unroll(*some), together[:, rows])


@KINDS
def test_a_step_has_the_same_bits_whatever_the_strides_of_its_arguments(kind: type[RecurrentCore]) -> None:
    core = core_of(kind, 11, 7)
    data = Sequences(core, 1, 5)
    wide_inputs, wide_state = (torch.cat([x, x], dim=1)[:, : x.shape[1]] for x in (data.inputs[0], data.state))
    turned_inputs, turned_state = (x.t().contiguous().t() for x in (data.inputs[0], data.state))
    with torch.inference_mode():
        expected = core.step(data.inputs[0], data.state)
        for inputs, state in ((wide_inputs, wide_state), (turned_inputs, turned_state)):
            assert not inputs.is_contiguous()
            assert not state.is_contiguous()
            assert all(torch.equal(x, y) for x, y in zip(core.step(inputs, state), expected, strict=True))


@KINDS
def test_an_unroll_has_the_same_numbers_whatever_the_strides_of_its_arguments(kind: type[RecurrentCore]) -> None:
    core = core_of(kind, 11, 7)
    data = Sequences(core, 6, 5)
    inputs, begins = (x.transpose(0, 1).contiguous().transpose(0, 1) for x in (data.inputs, data.begins))
    grads = []
    for arguments in ((data.inputs, data.begins), (inputs, begins)):
        leaf = arguments[0].detach().requires_grad_()
        output = core.unroll(leaf, data.state, arguments[1])
        grads.append([output, *torch.autograd.grad(output.sum(), [leaf, *core.parameters()])])
    assert all(torch.equal(x, y) for x, y in zip(*grads, strict=True))


@KINDS
def test_the_state_after_a_step_begins_with_its_outputs(kind: type[RecurrentCore]) -> None:
    core = core_of(kind, 3, 4)
    data = Sequences(core, 1, 2)
    outputs, state = core.step(data.inputs[0], data.state)
    assert outputs.shape == (2, core.num_features) == (2, 4)
    assert state.shape == (2, core.state_size)
    assert torch.equal(state[:, :4], outputs)


def test_an_lstm_step_is_what_a_pencil_makes_of_it() -> None:
    """One input 2, one unit of hidden 0.5 and cell -1, and a bias that turns each gate's input into a round number.

    Output gate: 2 * 1 + 0.5 * 2 - 3 = 0, open by a half. Input gate: 2 * 0.5 + 0.5 * 2 - 2 + ln 3 = ln 3, so 3/4.
    Forget gate: 2 * -1 + 0.5 * 4 - ln 4 = -ln 4, so 1/5. Candidate: 2 * 1 + 0.5 * -2 - 1 + ln 2 = ln 2, whose tanh is
    (4 - 1) / (4 + 1) = 3/5. Cell: 1/5 * -1 + 3/4 * 3/5 = 1/4. Output: tanh(1/4) / 2.
    """
    lstm = Lstm(1, 1).double()
    ln_2, ln_3, ln_4 = torch.tensor([2.0, 3.0, 4.0], dtype=torch.float64).log().tolist()
    with torch.no_grad():
        lstm.weight_input.copy_(torch.tensor([[1.0], [0.5], [-1.0], [1.0]]))
        lstm.weight_state.copy_(torch.tensor([[2.0], [2.0], [4.0], [-2.0]]))
        lstm.bias.copy_(torch.tensor([-3.0, -2.0 + ln_3, -ln_4, -1.0 + ln_2], dtype=torch.float64))
        inputs, state = torch.tensor([[2.0]]).double(), torch.tensor([[0.5, -1.0]]).double()
        outputs, after = lstm.step(inputs, state)
    assert outputs.item() == pytest.approx(0.24491866240370913 / 2, abs=1e-15)
    assert after.tolist() == [[pytest.approx(0.24491866240370913 / 2, abs=1e-15), pytest.approx(0.25, abs=1e-15)]]


def test_a_gru_step_is_what_a_pencil_makes_of_it() -> None:
    """One input 2 and one unit of state 0.5.

    Reset gate: 2 * 1 + 0.5 * 2 - 3 + ln 3 = ln 3, so 3/4. Update gate: 2 * -1 + 0.5 * 4 - ln 4 = -ln 4, so 1/5.
    Candidate: 2 * 1 - 5 + ln 2 + 3/4 * (0.5 * 6 + 1) = ln 2, whose tanh is 3/5. Output: 4/5 * 3/5 + 1/5 * 0.5 = 0.58.
    """
    gru = Gru(1, 1).double()
    ln_2, ln_3, ln_4 = torch.tensor([2.0, 3.0, 4.0], dtype=torch.float64).log().tolist()
    with torch.no_grad():
        gru.weight_input.copy_(torch.tensor([[1.0], [-1.0], [1.0]]))
        gru.weight_state.copy_(torch.tensor([[2.0], [4.0], [6.0]]))
        gru.bias.copy_(torch.tensor([-3.0 + ln_3, -ln_4, -5.0 + ln_2], dtype=torch.float64))
        gru.bias_reset.copy_(torch.tensor([1.0]))
        outputs, after = gru.step(torch.tensor([[2.0]]).double(), torch.tensor([[0.5]]).double())
    assert outputs.item() == after.item() == pytest.approx(0.58, abs=1e-15)


@KINDS
@pytest.mark.parametrize("num_inputs", [3, 8, 20])
def test_every_gate_starts_orthogonal(kind: type[RecurrentCore], num_inputs: int) -> None:
    core = kind(num_inputs, 8)
    for weight in (core.weight_input, core.weight_state):
        for block in weight.detach().view(-1, 8, weight.shape[1]):
            short = block @ block.T if block.shape[0] <= block.shape[1] else block.T @ block
            torch.testing.assert_close(short, torch.eye(len(short)), rtol=0, atol=1e-5)


def test_units_begin_with_memories_of_two_to_a_hundred_steps() -> None:
    """A gate that is open to 1 - 1/T keeps a share of 1/e for some T steps."""
    patience = math.log(99)
    assert Lstm(3, 3).bias.tolist() == pytest.approx(
        [0, 0, 0, 0, -patience / 2, -patience, 0, patience / 2, patience, 0, 0, 0]
    )
    gru = Gru(3, 2)
    assert gru.bias.tolist() == pytest.approx([0, 0, 0, patience, 0, 0])
    assert gru.bias_reset.tolist() == [0, 0]
    assert 1 / (1 + math.exp(-patience)) == pytest.approx(0.99)


@KINDS
def test_a_memory_is_a_function_of_the_global_generator(kind: type[RecurrentCore]) -> None:
    first, again, other = (core_of(kind, 5, 6, seed) for seed in (0, 0, 1))
    assert all(torch.equal(x, y) for x, y in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.weight_state, other.weight_state)
    assert all(parameter.dtype == torch.float32 for parameter in first.parameters())


class _Step(nn.Module):
    """A step as a module of its own, as an exporter wants it."""

    def __init__(self, core: RecurrentCore) -> None:
        super().__init__()
        self.core = core

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return self.core.step(inputs, state)


@KINDS
def test_a_step_can_be_exported_for_any_number_of_rows(kind: type[RecurrentCore]) -> None:
    core = core_of(kind, 11, 7)
    data = Sequences(core, 1, 5)
    rows = {0: torch.export.Dim("rows")}
    exported = torch.export.export(_Step(core), (data.inputs[0], data.state), dynamic_shapes=(rows, rows)).module()
    for num_rows in (2, 5):
        arguments = data.inputs[0, :num_rows], data.state[:num_rows]
        assert all(torch.equal(x, y) for x, y in zip(exported(*arguments), core.step(*arguments), strict=True))


@pytest.mark.parametrize("core", [Gru, Lstm])
def test_a_core_is_drawn_without_memory_even_where_torch_forgot_linspace(
    core: type[Gru] | type[Lstm], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does for good where transformers loads a model first and swaps the function meanwhile."""
    known = device_context._device_constructors() - {torch.linspace}
    monkeypatch.setattr(device_context, "_device_constructors", lambda: known)
    with torch.device("meta"):
        assert {parameter.device.type for parameter in core(3, 8).parameters()} == {"meta"}
