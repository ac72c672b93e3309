"""PPO's loss: by hand, against torch.distributions, and what it adds up to."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from ppo_batches import CLIP, RAW, clips, rows
from torch import Tensor

from htsrl.algorithms.ppo import PPO
from htsrl.algorithms.ppo.algorithm import Minibatch, PPOLoss, ppo_loss
from htsrl.algorithms.statistics import normalized
from htsrl.policies.distributions import Categorical, DiagonalGaussian

pytestmark = pytest.mark.usefixtures("fixed_seed")


def one_step_loss(ratio: float, advantage: float, settings: PPO = RAW) -> tuple[PPOLoss, float]:
    """The loss of one step whose action has become `ratio` times as likely, and its slope in the action's logit."""
    logits = torch.tensor([[0.0, 0.0]], requires_grad=True)
    before = torch.tensor([math.log(0.5 / ratio)])
    loss = ppo_loss(
        Categorical(logits), torch.zeros(1), rows(before, torch.tensor([advantage])), settings, clips(settings)
    )
    (gradient,) = torch.autograd.grad(loss.policy, logits)
    return loss, gradient[0, 0].item()


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected", "is_flat"),
    [
        (1.5, 1.0, -1.2, True),  # likelier than the clip allows, and good: no further
        (1.5, -1.0, 1.5, False),  # likelier, but bad: back, with full force
        (0.5, 1.0, -0.5, False),  # less likely, but good: back, with full force
        (0.5, -1.0, 0.8, True),  # less likely, and bad: no further
        (1.1, 1.0, -1.1, False),
        (0.9, -1.0, 0.9, False),
        (1.0, 2.0, -2.0, False),
    ],
)
def test_the_policy_loss_of_one_step_agrees_with_pencil_and_paper(
    ratio: float, advantage: float, expected: float, is_flat: bool
) -> None:
    loss, slope = one_step_loss(ratio, advantage)
    assert loss.policy.item() == pytest.approx(expected, rel=1e-6)
    # Where it is not clipped: d(-ratio * advantage) / d logit = -ratio * advantage * (1 - p), and p = 1/2.
    assert slope == pytest.approx(0.0 if is_flat else -ratio * advantage * 0.5, rel=1e-5)


@pytest.mark.parametrize("ratio", [0.5, 0.9, 1.0, 1.1, 1.5])
def test_divergence_and_clip_fraction_agree_with_pencil_and_paper(ratio: float) -> None:
    loss, _ = one_step_loss(ratio, 1.0)
    assert loss.approx_kl.item() == pytest.approx(ratio - 1 - math.log(ratio), abs=1e-6)
    assert loss.clip_fraction.item() == (abs(ratio - 1) > CLIP)


@pytest.mark.parametrize(
    ("value_clip_range", "new_value", "target", "expected"),
    [
        (None, 2.0, 0.0, 4.0),
        (0.2, 2.0, 0.0, 4.0),  # moved from 1 to 2, away from 0: max(2^2, 1.2^2)
        (0.2, 2.0, 3.0, 3.24),  # moved towards 3 but too far at once: max(1, (3 - 1.2)^2)
        (0.2, 0.0, 3.0, 9.0),  # the other way: max(9, (3 - 0.8)^2)
        (0.2, 0.0, -3.0, 14.44),  # max(9, (0.8 + 3)^2)
        (0.2, 1.1, 3.0, 3.61),  # within the range: nothing is clipped
    ],
)
def test_the_value_loss_of_one_step_agrees_with_pencil_and_paper(
    value_clip_range: float | None, new_value: float, target: float, expected: float
) -> None:
    data = rows(torch.zeros(1), torch.zeros(1), values=torch.tensor([1.0]), returns=torch.tensor([target]))
    settings = PPO(normalize_advantages=False, value_clip_range=value_clip_range)
    loss = ppo_loss(Categorical(torch.zeros(1, 2)), torch.tensor([new_value]), data, settings, clips(settings))
    assert loss.value.item() == pytest.approx(expected, rel=1e-5)


def test_the_total_is_policy_plus_value_minus_entropy() -> None:
    settings = PPO(normalize_advantages=False, value_coefficient=0.3, entropy_coefficient=0.1)
    loss, _ = one_step_loss(1.1, 1.0, settings)
    assert loss.entropy.item() == pytest.approx(math.log(2))
    assert loss.total.item() == pytest.approx(-1.1 - 0.1 * math.log(2))
    data = rows(torch.zeros(2), torch.zeros(2), returns=torch.tensor([1.0, 3.0]))
    loss = ppo_loss(Categorical(torch.zeros(2, 2)), torch.zeros(2), data, settings, clips(settings))
    assert loss.total.item() == pytest.approx(0.3 * 5 - 0.1 * math.log(2))


@pytest.mark.parametrize("logit", [0.0, 2.0])
def test_a_larger_entropy_coefficient_lowers_the_loss_by_the_entropy(logit: float) -> None:
    distribution = Categorical(torch.tensor([[logit, 0.0]]))
    data = rows(distribution.log_prob(torch.tensor([0])), torch.ones(1))
    totals = [
        ppo_loss(distribution, torch.zeros(1), data, replace(RAW, entropy_coefficient=x), clips(RAW)).total.item()
        for x in (0.0, 0.5)
    ]
    assert totals[1] - totals[0] == pytest.approx(-0.5 * distribution.entropy().item())


def test_of_two_policies_the_bonus_prefers_the_one_with_more_entropy() -> None:
    def total(logit: float) -> float:
        data = rows(torch.zeros(1), torch.zeros(1))
        settings = replace(RAW, entropy_coefficient=0.1)
        return ppo_loss(
            Categorical(torch.tensor([[logit, 0.0]])), torch.zeros(1), data, settings, clips(settings)
        ).total.item()

    assert total(0.0) < total(1.0) < total(5.0)


def test_gradients_agree_with_an_implementation_on_torch_distributions() -> None:
    settings = PPO(entropy_coefficient=0.02, value_coefficient=0.3, value_clip_range=0.1)
    mean, log_std, values = (torch.randn(*shape).double().requires_grad_() for shape in ((64, 3), (3,), (64,)))
    actions = torch.randn(64, 3)
    distribution = DiagonalGaussian(mean, log_std)
    nearby = distribution.log_prob(actions).detach() + 0.3 * torch.randn(64)
    older = nearby + 0.6 * torch.randn(64)
    data = Minibatch(actions, older, nearby, torch.randn(64), torch.randn(64), torch.randn(64))
    assert 0.05 < (data.weights(2.0) == 2.0).float().mean() < 0.3
    loss = ppo_loss(
        distribution, values, replace(data, advantages=normalized(data.advantages)), settings, clips(settings)
    )
    assert 0.2 < loss.clip_fraction.item() < 0.8
    expected = textbook_loss(mean, log_std, values, data)
    torch.testing.assert_close(loss.total, expected)
    gradients, expected_gradients = (torch.autograd.grad(x, [mean, log_std, values]) for x in (loss.total, expected))
    torch.testing.assert_close(gradients, expected_gradients)


def textbook_loss(mean: Tensor, log_std: Tensor, values: Tensor, data: Minibatch) -> Tensor:
    """The clip written as the two cases of the sign of the advantage (OpenAI's Spinning Up)."""
    normal: Any = torch.distributions.Normal(mean, log_std.exp())
    ratio = torch.exp(normal.log_prob(data.actions).sum(1) - data.log_probs)
    gains = (data.advantages - data.advantages.mean()) / (data.advantages.std() + 1e-8)
    bound = torch.where(gains > 0, (1 + CLIP) * gains, (1 - CLIP) * gains)
    weight = torch.exp(data.log_probs - data.behaviour_log_probs).clamp(max=2)
    policy = -(weight * torch.minimum(ratio * gains, bound)).mean()
    limited = torch.clamp(values, data.values - 0.1, data.values + 0.1)
    value = torch.maximum((values - data.returns) ** 2, (limited - data.returns) ** 2).mean()
    entropy: Tensor = normal.entropy().sum(1).mean()
    return policy + 0.3 * value - 0.02 * entropy
