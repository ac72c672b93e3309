"""Recurrent cores: the same bits step by step and unrolled, torch's numbers and gradients, and a pencil's."""

from __future__ import annotations

import math

import pytest
import torch
from helpers import assert_same_numbers
from torch import Tensor, nn

from htsrl.policies.memory import Gru, Lstm, Memory

KINDS = pytest.mark.parametrize("kind", [Lstm, Gru])
SIZES = (5, 7, 64, 128)
NUM_ROWS = (1, 2, 3, 5, 16, 17)
GATE_ORDERS = {Lstm: [1, 2, 3, 0], Gru: [0, 1, 2]}
"""Which of our blocks torch has first, second and so on."""

pytestmark = pytest.mark.usefixtures("one_thread")


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


@KINDS
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("num_rows", NUM_ROWS)
def test_an_unroll_has_the_bits_of_its_steps(kind: type[Memory], size: int, num_rows: int) -> None:
    memory = memory_of(kind, 11, size)
    data = Sequences(memory, 9, num_rows)
    unrolled = memory.unroll(data.inputs, data.state, data.begins)
    with torch.inference_mode():
        assert_same_numbers(unrolled, step_by_step(memory, data.inputs, data.state, data.begins))
        assert torch.equal(unrolled, memory.unroll(data.inputs, data.state, data.begins))


@KINDS
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("num_rows", NUM_ROWS)
def test_a_row_has_the_same_bits_in_a_batch_of_any_size(kind: type[Memory], size: int, num_rows: int) -> None:
    memory = memory_of(kind, 11, size)
    data = Sequences(memory, 6, 64)
    with torch.inference_mode():
        together = memory.unroll(data.inputs, data.state, data.begins)
        for first in (0, 1, 37, 64 - num_rows):
            rows = slice(first, first + num_rows)
            some = data.inputs[:, rows], data.state[rows], data.begins[:, rows]
            assert_same_numbers(step_by_step(memory, *some), together[:, rows])
            assert_same_numbers(memory.unroll(*some), together[:, rows])


@KINDS
def test_a_step_has_the_same_bits_whatever_the_strides_of_its_arguments(kind: type[Memory]) -> None:
    memory = memory_of(kind, 11, 7)
    data = Sequences(memory, 1, 5)
    wide_inputs, wide_state = (torch.cat([x, x], dim=1)[:, : x.shape[1]] for x in (data.inputs[0], data.state))
    turned_inputs, turned_state = (x.t().contiguous().t() for x in (data.inputs[0], data.state))
    with torch.inference_mode():
        expected = memory.step(data.inputs[0], data.state)
        for inputs, state in ((wide_inputs, wide_state), (turned_inputs, turned_state)):
            assert not inputs.is_contiguous()
            assert not state.is_contiguous()
            assert all(torch.equal(x, y) for x, y in zip(memory.step(inputs, state), expected, strict=True))


@KINDS
def test_an_unroll_has_the_same_numbers_whatever_the_strides_of_its_arguments(kind: type[Memory]) -> None:
    memory = memory_of(kind, 11, 7)
    data = Sequences(memory, 6, 5)
    inputs, begins = (x.transpose(0, 1).contiguous().transpose(0, 1) for x in (data.inputs, data.begins))
    grads = []
    for arguments in ((data.inputs, data.begins), (inputs, begins)):
        leaf = arguments[0].detach().requires_grad_()
        output = memory.unroll(leaf, data.state, arguments[1])
        grads.append([output, *torch.autograd.grad(output.sum(), [leaf, *memory.parameters()])])
    assert all(torch.equal(x, y) for x, y in zip(*grads, strict=True))


def in_order_of_torch(memory: Memory, weight: Tensor | None) -> Tensor:
    """Its blocks reordered."""
    assert weight is not None
    order = GATE_ORDERS[type(memory)]
    return weight.detach().view(len(order), memory.num_features, -1)[order].view_as(weight)


def reference_of(memory: Memory) -> nn.LSTM | nn.GRU:
    """torch's module with the same weights, in double precision."""
    num_inputs, size = memory.weight_input.shape[1], memory.num_features
    is_lstm = isinstance(memory, Lstm)
    reference: nn.LSTM | nn.GRU = nn.LSTM(num_inputs, size) if is_lstm else nn.GRU(num_inputs, size)
    bias_state = torch.zeros_like(memory.bias.detach())
    if isinstance(memory, Gru):
        bias_state[2 * size :] = memory.bias_reset.detach()
    weights = {
        "weight_ih_l0": in_order_of_torch(memory, memory.weight_input),
        "weight_hh_l0": in_order_of_torch(memory, memory.weight_state),
        "bias_ih_l0": in_order_of_torch(memory, memory.bias),
        "bias_hh_l0": bias_state,
    }
    reference.double().load_state_dict(weights)
    return reference


def reference_outputs(reference: nn.LSTM | nn.GRU, inputs: Tensor, state: Tensor, begins: Tensor) -> Tensor:
    """Every episode of every row by itself."""
    rows = []
    for row in range(inputs.shape[1]):
        starts = sorted({0, *begins[:, row].nonzero().flatten().tolist()})
        episodes = []
        for start, end in zip(starts, [*starts[1:], len(inputs)], strict=True):
            before = torch.zeros_like(state[row]) if begins[start, row] else state[row]
            hidden_and_cell = before[None].chunk(2, dim=1)
            is_lstm = isinstance(reference, nn.LSTM)
            episodes.append(reference(inputs[start:end, row], hidden_and_cell if is_lstm else before[None])[0])
        rows.append(torch.cat(episodes))
    return torch.stack(rows, dim=1)


@KINDS
@pytest.mark.parametrize(("length", "num_rows", "size"), [(1, 1, 1), (7, 3, 4), (12, 5, 7), (20, 4, 16)])
def test_outputs_and_gradients_are_those_of_torch(kind: type[Memory], length: int, num_rows: int, size: int) -> None:
    memory = memory_of(kind, 6, size).double()
    data = Sequences(memory, length, num_rows)
    reference = reference_of(memory)
    inputs, same_inputs = data.inputs.clone().requires_grad_(), data.inputs.clone().requires_grad_()
    outputs = memory.unroll(inputs, data.state, data.begins)
    expected = reference_outputs(reference, same_inputs, data.state, data.begins)
    torch.autograd.backward([outputs, expected], [data.grad_outputs, data.grad_outputs])
    torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(inputs.grad, same_inputs.grad, rtol=0, atol=1e-10)
    for ours, torchs in (("weight_input", "weight_ih_l0"), ("weight_state", "weight_hh_l0"), ("bias", "bias_ih_l0")):
        grad = in_order_of_torch(memory, getattr(memory, ours).grad)
        torch.testing.assert_close(grad, getattr(reference, torchs).grad, rtol=0, atol=1e-10)
    if isinstance(memory, Gru):
        grad = getattr(reference, "bias_hh_l0").grad[2 * size :]  # noqa: B009
        torch.testing.assert_close(memory.bias_reset.grad, grad, rtol=0, atol=1e-10)


@KINDS
def test_gradients_agree_with_finite_differences(kind: type[Memory]) -> None:
    memory = memory_of(kind, 3, 4).double()
    data = Sequences(memory, 5, 3)
    data.begins[0, 1] = data.begins[3, 2] = True
    parameters = dict(memory.named_parameters())

    def outputs(inputs: Tensor, *_: Tensor) -> Tensor:
        return memory.unroll(inputs, data.state, data.begins)

    assert torch.autograd.gradcheck(outputs, (data.inputs.requires_grad_(), *parameters.values()))


@KINDS
def test_gradients_in_single_precision_are_close_to_those_of_the_steps(kind: type[Memory]) -> None:
    memory = memory_of(kind, 11, 64)
    data = Sequences(memory, 16, 5, share_of_begins=0.1)
    leaves = [data.inputs.requires_grad_(), *memory.parameters()]
    expected, actual = (
        torch.autograd.grad(unroll(data.inputs, data.state, data.begins), leaves, data.grad_outputs)
        for unroll in (lambda *arguments: step_by_step(memory, *arguments), memory.unroll)
    )
    for x, y in zip(actual, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4)


@KINDS
def test_no_gradient_crosses_the_beginning_of_an_episode(kind: type[Memory]) -> None:
    memory = memory_of(kind, 3, 4)
    data = Sequences(memory, 6, 3, share_of_begins=0)
    data.begins[4, 1] = True
    inputs = data.inputs.requires_grad_()
    (grad,) = torch.autograd.grad(memory.unroll(inputs, data.state, data.begins)[5].sum(), [inputs])
    reached = grad.abs().sum(dim=2) > 0
    assert reached[:, 0].all()
    assert reached[:, 1].tolist() == [False, False, False, False, True, True]
    assert reached[:, 2].all()


@KINDS
def test_nothing_of_the_state_before_is_left_after_the_beginning_of_an_episode(kind: type[Memory]) -> None:
    memory = memory_of(kind, 3, 4)
    data = Sequences(memory, 4, 2)
    data.begins[0] = True
    zeros, broken = torch.zeros_like(data.state), torch.full_like(data.state, torch.nan)
    outputs = memory.unroll(data.inputs, broken, data.begins)
    assert torch.equal(outputs, memory.unroll(data.inputs, zeros, data.begins))
    grads = torch.autograd.grad(outputs.sum(), list(memory.parameters()))
    assert all(grad.isfinite().all() for grad in grads)


@KINDS
def test_no_gradient_flows_into_the_state_before_the_first_step(kind: type[Memory]) -> None:
    memory = memory_of(kind, 3, 4)
    data = Sequences(memory, 4, 2)
    state = data.state.requires_grad_()
    outputs = memory.unroll(data.inputs, state, data.begins).sum()
    assert torch.autograd.grad(outputs, [state, memory.bias], allow_unused=True)[0] is None
    memory.requires_grad_(False)
    assert not memory.unroll(data.inputs, state, data.begins).requires_grad


@KINDS
def test_gradients_are_the_same_to_the_bit_every_time(kind: type[Memory]) -> None:
    memory = memory_of(kind, 11, 64)
    data = Sequences(memory, 16, 5)
    leaves = [data.inputs.requires_grad_(), *memory.parameters()]
    outputs = memory.unroll(data.inputs, data.state, data.begins)
    first = torch.autograd.grad(outputs, leaves, data.grad_outputs, retain_graph=True)
    again = torch.autograd.grad(outputs, leaves, data.grad_outputs)
    anew = torch.autograd.grad(memory.unroll(data.inputs, data.state, data.begins), leaves, data.grad_outputs)
    for x, y, z in zip(first, again, anew, strict=True):
        assert torch.equal(x, y)
        assert torch.equal(x, z)


@KINDS
def test_an_unroll_leaves_what_others_of_its_shape_gave_and_will_be_differentiated(kind: type[Memory]) -> None:
    memory = memory_of(kind, 11, 8)
    first, second = Sequences(memory, 6, 5, seed=1), Sequences(memory, 6, 5, seed=2)
    parameters = list(memory.parameters())

    def outputs_of(data: Sequences) -> Tensor:
        return memory.unroll(data.inputs, data.state, data.begins)

    alone = outputs_of(first)
    expected = alone.detach().clone(), *torch.autograd.grad(alone, parameters, first.grad_outputs)
    outputs, others = outputs_of(first), outputs_of(second)
    torch.autograd.grad(others, parameters, second.grad_outputs)
    actual = outputs, *torch.autograd.grad(outputs, parameters, first.grad_outputs)
    assert all(torch.equal(x, y) for x, y in zip(actual, expected, strict=True))


@KINDS
@pytest.mark.parametrize("of_inputs", [True, False], ids=["inputs", "parameters"])
def test_inputs_or_parameters_alone_can_have_gradients(kind: type[Memory], of_inputs: bool) -> None:
    memory = memory_of(kind, 3, 4)
    data = Sequences(memory, 5, 3)
    inputs, parameters = data.inputs.requires_grad_(), list(memory.parameters())
    all_grads = torch.autograd.grad(memory.unroll(inputs, data.state, data.begins).sum(), [inputs, *parameters])
    memory.requires_grad_(not of_inputs)
    inputs.requires_grad_(of_inputs)
    leaves, expected = ([inputs], all_grads[:1]) if of_inputs else (parameters, all_grads[1:])
    grads = torch.autograd.grad(memory.unroll(inputs, data.state, data.begins).sum(), leaves)
    assert all(torch.equal(x, y) for x, y in zip(grads, expected, strict=True))


@KINDS
def test_the_state_after_a_step_begins_with_its_outputs(kind: type[Memory]) -> None:
    memory = memory_of(kind, 3, 4)
    data = Sequences(memory, 1, 2)
    outputs, state = memory.step(data.inputs[0], data.state)
    assert outputs.shape == (2, memory.num_features) == (2, 4)
    assert state.shape == (2, memory.state_size)
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
def test_every_gate_starts_orthogonal(kind: type[Memory], num_inputs: int) -> None:
    memory = kind(num_inputs, 8)
    for weight in (memory.weight_input, memory.weight_state):
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
def test_a_memory_is_a_function_of_the_global_generator(kind: type[Memory]) -> None:
    first, again, other = (memory_of(kind, 5, 6, seed) for seed in (0, 0, 1))
    assert all(torch.equal(x, y) for x, y in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.weight_state, other.weight_state)
    assert all(parameter.dtype == torch.float32 for parameter in first.parameters())


class _Step(nn.Module):
    """A step as a module of its own, as an exporter wants it."""

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.memory = memory

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return self.memory.step(inputs, state)


@KINDS
def test_a_step_can_be_exported_for_any_number_of_rows(kind: type[Memory]) -> None:
    memory = memory_of(kind, 11, 7)
    data = Sequences(memory, 1, 5)
    rows = {0: torch.export.Dim("rows")}
    exported = torch.export.export(_Step(memory), (data.inputs[0], data.state), dynamic_shapes=(rows, rows)).module()
    for num_rows in (2, 5):
        arguments = data.inputs[0, :num_rows], data.state[:num_rows]
        assert all(torch.equal(x, y) for x, y in zip(exported(*arguments), memory.step(*arguments), strict=True))
