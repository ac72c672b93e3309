"""Gradients of recurrent cores: torch's numbers, finite differences, where they end, and the same bits every time."""

from __future__ import annotations

import pytest
import torch
from recurrent_sequences import KINDS, Sequences, core_of, step_by_step
from torch import Tensor, nn

from htsrl.policies.recurrent import Gru, Lstm, RecurrentCore

GATE_ORDERS = {Lstm: [1, 2, 3, 0], Gru: [0, 1, 2]}
"""Which of our blocks torch has first, second and so on."""

pytestmark = pytest.mark.usefixtures("one_thread")


def in_order_of_torch(core: RecurrentCore, weight: Tensor | None) -> Tensor:
    """Its blocks reordered."""
    assert weight is not None
    order = GATE_ORDERS[type(core)]
    return weight.detach().view(len(order), core.num_features, -1)[order].view_as(weight)


def reference_of(core: RecurrentCore) -> nn.LSTM | nn.GRU:
    """torch's module with the same weights, in double precision."""
    num_inputs, size = core.weight_input.shape[1], core.num_features
    is_lstm = isinstance(core, Lstm)
    reference: nn.LSTM | nn.GRU = nn.LSTM(num_inputs, size) if is_lstm else nn.GRU(num_inputs, size)
    bias_state = torch.zeros_like(core.bias.detach())
    if isinstance(core, Gru):
        bias_state[2 * size :] = core.bias_reset.detach()
    weights = {
        "weight_ih_l0": in_order_of_torch(core, core.weight_input),
        "weight_hh_l0": in_order_of_torch(core, core.weight_state),
        "bias_ih_l0": in_order_of_torch(core, core.bias),
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
def test_outputs_and_gradients_are_those_of_torch(
    kind: type[RecurrentCore], length: int, num_rows: int, size: int
) -> None:
    core = core_of(kind, 6, size).double()
    data = Sequences(core, length, num_rows)
    reference = reference_of(core)
    inputs, same_inputs = data.inputs.clone().requires_grad_(), data.inputs.clone().requires_grad_()
    outputs = core.unroll(inputs, data.state, data.begins)
    expected = reference_outputs(reference, same_inputs, data.state, data.begins)
    torch.autograd.backward([outputs, expected], [data.grad_outputs, data.grad_outputs])
    torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(inputs.grad, same_inputs.grad, rtol=0, atol=1e-10)
    for ours, torchs in (("weight_input", "weight_ih_l0"), ("weight_state", "weight_hh_l0"), ("bias", "bias_ih_l0")):
        grad = in_order_of_torch(core, getattr(core, ours).grad)
        torch.testing.assert_close(grad, getattr(reference, torchs).grad, rtol=0, atol=1e-10)
    if isinstance(core, Gru):
        grad = getattr(reference, "bias_hh_l0").grad[2 * size :]  # noqa: B009
        torch.testing.assert_close(core.bias_reset.grad, grad, rtol=0, atol=1e-10)


@KINDS
def test_gradients_agree_with_finite_differences(kind: type[RecurrentCore]) -> None:
    core = core_of(kind, 3, 4).double()
    data = Sequences(core, 5, 3)
    data.begins[0, 1] = data.begins[3, 2] = True
    parameters = dict(core.named_parameters())

    def outputs(inputs: Tensor, *_: Tensor) -> Tensor:
        return core.unroll(inputs, data.state, data.begins)

    assert torch.autograd.gradcheck(outputs, (data.inputs.requires_grad_(), *parameters.values()))


@KINDS
def test_gradients_in_single_precision_are_close_to_those_of_the_steps(kind: type[RecurrentCore]) -> None:
    core = core_of(kind, 11, 64)
    data = Sequences(core, 16, 5, share_of_begins=0.1)
    leaves = [data.inputs.requires_grad_(), *core.parameters()]
    expected, actual = (
        torch.autograd.grad(unroll(data.inputs, data.state, data.begins), leaves, data.grad_outputs)
        for unroll in (lambda *arguments: step_by_step(core, *arguments), core.unroll)
    )
    for x, y in zip(actual, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4)


@KINDS
def test_no_gradient_crosses_the_beginning_of_an_episode(kind: type[RecurrentCore]) -> None:
    core = core_of(kind, 3, 4)
    data = Sequences(core, 6, 3, share_of_begins=0)
    data.begins[4, 1] = True
    inputs = data.inputs.requires_grad_()
    (grad,) = torch.autograd.grad(core.unroll(inputs, data.state, data.begins)[5].sum(), [inputs])
    reached = grad.abs().sum(dim=2) > 0
    assert reached[:, 0].all()
    assert reached[:, 1].tolist() == [False, False, False, False, True, True]
    assert reached[:, 2].all()


@KINDS
def test_nothing_of_the_state_before_is_left_after_the_beginning_of_an_episode(kind: type[RecurrentCore]) -> None:
    core = core_of(kind, 3, 4)
    data = Sequences(core, 4, 2)
    data.begins[0] = True
    zeros, broken = torch.zeros_like(data.state), torch.full_like(data.state, torch.nan)
    outputs = core.unroll(data.inputs, broken, data.begins)
    assert torch.equal(outputs, core.unroll(data.inputs, zeros, data.begins))
    grads = torch.autograd.grad(outputs.sum(), list(core.parameters()))
    assert all(grad.isfinite().all() for grad in grads)


@KINDS
def test_no_gradient_flows_into_the_state_before_the_first_step(kind: type[RecurrentCore]) -> None:
    core = core_of(kind, 3, 4)
    data = Sequences(core, 4, 2)
    state = data.state.requires_grad_()
    outputs = core.unroll(data.inputs, state, data.begins).sum()
    assert torch.autograd.grad(outputs, [state, core.bias], allow_unused=True)[0] is None
    core.requires_grad_(False)
    assert not core.unroll(data.inputs, state, data.begins).requires_grad


@KINDS
def test_gradients_are_the_same_to_the_bit_every_time(kind: type[RecurrentCore]) -> None:
    core = core_of(kind, 11, 64)
    data = Sequences(core, 16, 5)
    leaves = [data.inputs.requires_grad_(), *core.parameters()]
    outputs = core.unroll(data.inputs, data.state, data.begins)
    first = torch.autograd.grad(outputs, leaves, data.grad_outputs, retain_graph=True)
    again = torch.autograd.grad(outputs, leaves, data.grad_outputs)
    anew = torch.autograd.grad(core.unroll(data.inputs, data.state, data.begins), leaves, data.grad_outputs)
    for x, y, z in zip(first, again, anew, strict=True):
        assert torch.equal(x, y)
        assert torch.equal(x, z)


@KINDS
def test_an_unroll_leaves_what_others_of_its_shape_gave_and_will_be_differentiated(kind: type[RecurrentCore]) -> None:
    core = core_of(kind, 11, 8)
    first, second = Sequences(core, 6, 5, seed=1), Sequences(core, 6, 5, seed=2)
    parameters = list(core.parameters())

    def outputs_of(data: Sequences) -> Tensor:
        return core.unroll(data.inputs, data.state, data.begins)

    alone = outputs_of(first)
    expected = alone.detach().clone(), *torch.autograd.grad(alone, parameters, first.grad_outputs)
    outputs, others = outputs_of(first), outputs_of(second)
    torch.autograd.grad(others, parameters, second.grad_outputs)
    actual = outputs, *torch.autograd.grad(outputs, parameters, first.grad_outputs)
    assert all(torch.equal(x, y) for x, y in zip(actual, expected, strict=True))


@KINDS
@pytest.mark.parametrize("of_inputs", [True, False], ids=["inputs", "parameters"])
def test_inputs_or_parameters_alone_can_have_gradients(kind: type[RecurrentCore], of_inputs: bool) -> None:
    core = core_of(kind, 3, 4)
    data = Sequences(core, 5, 3)
    inputs, parameters = data.inputs.requires_grad_(), list(core.parameters())
    all_grads = torch.autograd.grad(core.unroll(inputs, data.state, data.begins).sum(), [inputs, *parameters])
    core.requires_grad_(not of_inputs)
    inputs.requires_grad_(of_inputs)
    leaves, expected = ([inputs], all_grads[:1]) if of_inputs else (parameters, all_grads[1:])
    grads = torch.autograd.grad(core.unroll(inputs, data.state, data.begins).sum(), leaves)
    assert all(torch.equal(x, y) for x, y in zip(grads, expected, strict=True))
