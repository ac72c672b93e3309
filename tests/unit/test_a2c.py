"""A2C: the loss by hand and against torch.distributions, and the delayed gradient in closed form."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from recorded_draft import recorded_draft
from torch import nn
from updates import Lengths, a2c_update, improve

from htsrl.algorithms.a2c import A2C
from htsrl.algorithms.a2c.algorithm import a2c_loss
from htsrl.algorithms.batch import Batch
from htsrl.algorithms.draft import Drafts
from htsrl.algorithms.optimizers import NUM_VECTORS
from htsrl.algorithms.returns import Transitions
from htsrl.config import Experiment, Network
from htsrl.config.algorithm_settings import CommonSettings
from htsrl.dataflow.parameters import ParameterRing, parameter_arrays
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.policies.distributions import Categorical, DiagonalGaussian
from htsrl.policies.policy import Policy, build_policy

Float64 = NDArray[np.float64]
OBSERVATIONS = spaces.Box(-1.0, 1.0, (3,), np.float32)
ACTIONS = spaces.Discrete(4)
NUM_STEPS, NUM_ENVS = 6, 5


pytestmark = pytest.mark.usefixtures("fixed_seed")


def small_policy(hidden_sizes: tuple[int, ...] = (8,), actions: spaces.Space[Any] = ACTIONS) -> Policy:
    return build_policy(OBSERVATIONS, actions, Network(hidden_sizes=hidden_sizes), seed=1)


def random_batch(num_steps: int = NUM_STEPS) -> Batch:
    """Noise in every field; the updates do not ask whether a policy would have done this."""
    shape = (num_steps, NUM_ENVS)
    return Batch(
        observations={"obs": torch.randn(*shape, 3)},
        actions=torch.randint(0, 4, shape),
        log_probs=-torch.rand(shape),
        steps=Transitions(
            rewards_TB=torch.randn(shape),
            values_TB=torch.randn(shape),
            next_values_TB=torch.randn(shape),
            terminated_TB=torch.rand(shape) < 0.1,
            truncated_TB=torch.rand(shape) < 0.1,
        ),
    )


def test_the_loss_agrees_with_pencil_and_paper() -> None:
    """Probabilities (1/4, 3/4), actions 0 and 1, advantages 2 and -1, value errors 1 and 2.

    policy  = -(2 ln 1/4 - ln 3/4) / 2 = 1.242453
    value   = (1 + 4) / 2 = 2.5
    entropy = -(1/4 ln 1/4 + 3/4 ln 3/4) = 0.562335
    """
    loss = a2c_loss(
        Categorical(torch.tensor([[0.25, 0.75], [0.25, 0.75]]).log()),
        values=torch.tensor([0.0, 1.0]),
        actions=torch.tensor([0, 1]),
        advantages=torch.tensor([2.0, -1.0]),
        returns=torch.tensor([1.0, 3.0]),
        settings=A2C(value_coefficient=0.5, entropy_coefficient=0.1),
    )
    assert loss.policy.item() == pytest.approx(1.242453, abs=1e-6)
    assert loss.value.item() == pytest.approx(2.5)
    assert loss.entropy.item() == pytest.approx(0.562335, abs=1e-6)
    assert loss.total.item() == pytest.approx(1.242453 + 0.5 * 2.5 - 0.1 * 0.562335, abs=1e-6)


@pytest.mark.parametrize("logits", [[[0.0, 0.0]], [[2.0, 0.0]]])
def test_a_larger_entropy_coefficient_lowers_the_loss_by_the_entropy(logits: list[list[float]]) -> None:
    def total(entropy_coefficient: float) -> float:
        settings, zero = A2C(entropy_coefficient=entropy_coefficient), torch.zeros(1)
        return a2c_loss(Categorical(torch.tensor(logits)), zero, zero.long(), zero, zero, settings).total.item()

    entropy = Categorical(torch.tensor(logits)).entropy().item()
    assert total(0.5) - total(0.0) == pytest.approx(-0.5 * entropy)


def test_of_two_policies_the_bonus_prefers_the_one_with_more_entropy() -> None:
    def total(logit: float) -> float:
        zero, distribution = torch.zeros(1), Categorical(torch.tensor([[logit, 0.0]]))
        return a2c_loss(distribution, zero, zero.long(), zero, zero, A2C(entropy_coefficient=0.1)).total.item()

    assert total(0.0) < total(1.0) < total(5.0)


def test_the_entropy_bonus_alone_makes_a_policy_more_uniform() -> None:
    logits = torch.tensor([[2.0, 0.0, -1.0]], requires_grad=True)
    zero = torch.zeros(1)
    a2c_loss(Categorical(logits), zero, zero.long(), zero, zero, A2C(entropy_coefficient=1.0)).total.backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    moved = (logits - 0.1 * logits.grad).detach()
    assert Categorical(moved).entropy() > Categorical(logits.detach()).entropy()


def test_gradients_for_discrete_actions_agree_with_torch_distributions() -> None:
    settings = A2C(entropy_coefficient=0.02, value_coefficient=0.3)
    logits, values = torch.randn(7, 4, requires_grad=True), torch.randn(7, requires_grad=True)
    actions, advantages, returns = torch.randint(0, 4, (7,)), torch.randn(7), torch.randn(7)
    ours = a2c_loss(Categorical(logits), values, actions, advantages, returns, settings).total
    theirs: Any = torch.distributions.Categorical(logits=logits)
    expected = -(theirs.log_prob(actions) * advantages).mean() - 0.02 * theirs.entropy().mean()
    expected = expected + 0.3 * nn.functional.mse_loss(values, returns)
    torch.testing.assert_close(ours, expected)
    gradients, expected_gradients = (torch.autograd.grad(loss, [logits, values]) for loss in (ours, expected))
    torch.testing.assert_close(gradients, expected_gradients)


def test_gradients_for_continuous_actions_agree_with_torch_distributions() -> None:
    settings = A2C(entropy_coefficient=0.02, value_coefficient=0.3)
    mean, log_std = torch.randn(7, 3, requires_grad=True), torch.randn(3, requires_grad=True)
    values, actions, advantages, returns = torch.randn(7), torch.randn(7, 3), torch.randn(7), torch.randn(7)
    ours = a2c_loss(DiagonalGaussian(mean, log_std), values, actions, advantages, returns, settings).total
    theirs: Any = torch.distributions.Independent(torch.distributions.Normal(mean, log_std.exp()), 1)
    expected = -(theirs.log_prob(actions) * advantages).mean() - 0.02 * theirs.entropy().mean()
    expected = expected + 0.3 * nn.functional.mse_loss(values, returns)
    torch.testing.assert_close(ours, expected)
    gradients, expected_gradients = (torch.autograd.grad(loss, [mean, log_std]) for loss in (ours, expected))
    torch.testing.assert_close(gradients, expected_gradients)


def test_every_unroll_is_one_step_and_every_gradient_is_clipped() -> None:
    policy, behaviour = small_policy(), small_policy()
    draft, optimizer = recorded_draft(policy)
    settings = A2C(max_gradient_norm=0.01)
    metrics = a2c_update(settings, draft, behaviour, random_batch(), Lengths(2, 1), learning_rate=0.1)
    assert [gradient.norm().item() for gradient in optimizer.gradients] == pytest.approx([0.01] * 3, rel=1e-3)
    assert metrics["train/gradient_norm"] > 0.1


def test_a_short_gradient_is_not_lengthened() -> None:
    batch, lengths = random_batch(), []
    for max_gradient_norm in (1e3, 1e6):
        behaviour = small_policy()
        draft, optimizer = recorded_draft(small_policy())
        settings = A2C(max_gradient_norm=max_gradient_norm)
        metrics = a2c_update(settings, draft, behaviour, batch, Lengths(NUM_STEPS, 1), learning_rate=0.1)
        lengths += [optimizer.gradients[0].norm().item(), metrics["train/gradient_norm"]]
    assert lengths == pytest.approx([lengths[0]] * 4)


def test_normalizing_makes_the_scale_of_rewards_irrelevant_to_the_policy() -> None:
    batch = random_batch()
    steps = batch.steps
    tenfold = replace(
        steps,
        rewards_TB=10 * steps.rewards_TB,
        values_TB=10 * steps.values_TB,
        next_values_TB=10 * steps.next_values_TB,
    )
    settings = A2C(normalize_advantages=True, value_coefficient=0.0, max_gradient_norm=1e6)
    gradients = []
    for data in (batch, replace(batch, steps=tenfold)):
        behaviour = small_policy()
        draft, optimizer = recorded_draft(small_policy())
        a2c_update(settings, draft, behaviour, data, Lengths(NUM_STEPS, 1), learning_rate=0.1)
        gradients += optimizer.gradients
    torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize(("anneal", "expected"), [(True, 0.25), (False, 1.0)])
def test_the_learning_rate_falls_linearly_to_zero_or_stays(anneal: bool, expected: float) -> None:
    settings = A2C(learning_rate=0.2, anneal_learning_rate=anneal)
    experiment = Experiment("any", algorithm=settings, num_envs=NUM_ENVS, sync_interval=NUM_STEPS, total_steps=8 * 30)
    behaviour = small_policy()
    draft, optimizer = recorded_draft(small_policy())
    metrics = [improve(experiment, update, draft, behaviour, random_batch()) for update in (0, 6)]
    assert experiment.num_intervals == 8
    assert optimizer.learning_rates == pytest.approx([0.2, 0.2 * expected])
    assert [m["train/learning_rate"] for m in metrics] == pytest.approx([0.2, 0.2 * expected])


def build_ring(hidden_sizes: tuple[int, ...], settings: A2C) -> ParameterRing:
    def build() -> Policy:
        return small_policy(hidden_sizes)

    block = SharedArrays(parameter_arrays(build(), NUM_VECTORS[settings.optimizer]))
    block.close_fd()
    return ParameterRing(block, build, torch.device("cpu"))


def linear_parameters(policy: nn.Module) -> dict[str, Float64]:
    return {name: parameter.detach().double().numpy().copy() for name, parameter in policy.named_parameters()}


def closed_form_gradient(at: dict[str, Float64], batch: Batch, settings: A2C) -> dict[str, Float64]:
    """The gradient of the A2C loss of softmax regression and a linear value, written out.

    With p the probabilities, y the action taken as one-hot, A the advantage, H the entropy and N the steps:
    d policy / d logits = A (p - y) / N,  d entropy / d logits = -p (log p + H) / N,  d value / d v = 2 (v - R) / N.
    """
    obs = batch.observations["obs"].flatten(0, 1).double().numpy()
    taken = np.eye(4)[batch.actions.flatten().numpy()]
    logits = obs @ at["action_head.weight"].T + at["action_head.bias"]
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    values = (obs @ at["value_head.weight"].T + at["value_head.bias"])[:, 0]
    steps = batch.steps
    # Lambda 0: an advantage is one temporal difference.
    returns = (steps.rewards_TB + settings.discount * (~steps.terminated_TB) * steps.next_values_TB).flatten()
    advantages = (returns - steps.values_TB.flatten()).double().numpy()
    num_rows = len(obs)
    entropies = -(probabilities * np.log(probabilities)).sum(axis=1, keepdims=True)
    by_logits = advantages[:, None] * (probabilities - taken)
    by_logits += settings.entropy_coefficient * probabilities * (np.log(probabilities) + entropies)
    by_values = 2 * settings.value_coefficient * (values - returns.double().numpy())
    return {
        "action_head.weight": by_logits.T @ obs / num_rows,
        "action_head.bias": by_logits.sum(axis=0) / num_rows,
        "value_head.weight": by_values[None] @ obs / num_rows,
        "value_head.bias": by_values.sum(keepdims=True) / num_rows,
    }


class ClosedForm:
    """A2C on a linear policy in float64: theta[j-1] makes the data, theta[j] moves."""

    def __init__(self, settings: A2C, theta: dict[str, Float64]) -> None:
        self.settings = settings
        self.square_average = {name: np.zeros_like(x) for name, x in theta.items()}

    def step(
        self, theta: dict[str, Float64], behaviour: dict[str, Float64], batch: Batch, learning_rate: float
    ) -> dict[str, Float64]:
        gradient = closed_form_gradient(behaviour, batch, self.settings)
        length = math.sqrt(sum((g**2).sum() for g in gradient.values()))
        scale = min(1.0, self.settings.max_gradient_norm / length)
        moved = {}
        for name, x in theta.items():
            g, square = scale * gradient[name], self.square_average[name]
            decay = self.settings.rmsprop_decay
            self.square_average[name] = square = decay * square + (1 - decay) * g**2
            moved[name] = x - learning_rate * g / (np.sqrt(square) + self.settings.optimizer_epsilon)
        return moved


@pytest.mark.parametrize("max_gradient_norm", [0.1, 1e6], ids=["clipped", "not clipped"])
def test_the_delayed_gradient_matches_its_closed_form_on_a_linear_policy(max_gradient_norm: float) -> None:
    """theta[j+1] = theta[j] - eta rmsprop(gradient at theta[j-1]), over five updates of two unrolls each."""
    settings = A2C(gae_lambda=0.0, entropy_coefficient=0.05, max_gradient_norm=max_gradient_norm, unroll_length=3)
    ring = build_ring((), settings)
    ring.initialise(small_policy(hidden_sizes=()))
    drafts = Drafts(ring, CommonSettings.of(settings))
    thetas = [linear_parameters(ring.modules[0])]
    closed_form = ClosedForm(settings, thetas[0])
    for j in range(5):
        batch = random_batch()
        behaviour = ring.module(max(j - 1, 0))
        assert isinstance(behaviour, Policy)
        a2c_update(settings, drafts.begin(j + 1), behaviour, batch, Lengths(3, 1), learning_rate=0.05)
        expected = thetas[j]
        for unroll in (slice(0, 3), slice(3, 6)):
            expected = closed_form.step(expected, thetas[max(j - 1, 0)], part(batch, unroll), learning_rate=0.05)
        thetas.append(linear_parameters(ring.module(j + 1)))
        for name, x in thetas[-1].items():
            np.testing.assert_allclose(x, expected[name], rtol=1e-4, atol=1e-6, err_msg=f"{name} of version {j + 1}")
        for version in {j, max(j - 1, 0)}:
            kept = linear_parameters(ring.module(version))
            assert all((kept[name] == thetas[version][name]).all() for name in kept), "an old version was touched"


def part(batch: Batch, rows: slice) -> Batch:
    steps = batch.steps
    return Batch(
        {name: x[rows] for name, x in batch.observations.items()},
        batch.actions[rows],
        batch.log_probs[rows],
        Transitions(
            steps.rewards_TB[rows],
            steps.values_TB[rows],
            steps.next_values_TB[rows],
            steps.terminated_TB[rows],
            steps.truncated_TB[rows],
        ),
    )


def test_the_gradient_is_taken_at_the_behaviour_parameters_and_not_at_those_it_moves() -> None:
    batch, gradients = random_batch(), []
    for draft_scale in (1.0, 3.0):
        policy, behaviour = small_policy(), small_policy()
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter.mul_(draft_scale)
        draft, optimizer = recorded_draft(policy)
        a2c_update(A2C(), draft, behaviour, batch, Lengths(2, 1), learning_rate=0.1)
        gradients.append(optimizer.gradients)
    assert all(torch.equal(x, y) for x, y in zip(*gradients, strict=True))
