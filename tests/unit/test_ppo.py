"""PPO: the loss by hand and against torch.distributions, and what an update does with it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from gymnasium import spaces
from recorded_draft import RecordingSgd, recorded_draft
from torch import Tensor, nn

from htsrl.algorithms.batch import Batch
from htsrl.algorithms.ppo import MOST_WEIGHT, Minibatch, PPOLoss, PPOProgress, ppo_loss, ppo_update
from htsrl.algorithms.returns import Transitions, gae
from htsrl.algorithms.statistics import normalized
from htsrl.algorithms.update import improve
from htsrl.config import PPO, Experiment, Network
from htsrl.dataflow.parameters import FlatLayout
from htsrl.policies.distributions import Categorical, DiagonalGaussian
from htsrl.policies.policy import Policy, build_policy

OBSERVATIONS = spaces.Box(-1.0, 1.0, (3,), np.float32)
NUM_STEPS, NUM_ENVS = 8, 4
CLIP = 0.2
RAW = PPO(normalize_advantages=False)


@pytest.fixture(autouse=True)
def fixed_seed() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def rows(
    log_probs: Tensor, advantages: Tensor, values: Tensor | None = None, returns: Tensor | None = None
) -> Minibatch:
    """Steps that all took action 0."""
    zeros = torch.zeros(len(advantages))
    values, returns = zeros if values is None else values, zeros if returns is None else returns
    return Minibatch(zeros.long(), log_probs, log_probs, values, advantages, returns)


def one_step_loss(ratio: float, advantage: float, settings: PPO = RAW) -> tuple[PPOLoss, float]:
    """The loss of one step whose action has become `ratio` times as likely, and its slope in the action's logit."""
    logits = torch.tensor([[0.0, 0.0]], requires_grad=True)
    before = torch.tensor([math.log(0.5 / ratio)])
    loss = ppo_loss(Categorical(logits), torch.zeros(1), rows(before, torch.tensor([advantage])), settings, CLIP)
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
    loss = ppo_loss(Categorical(torch.zeros(1, 2)), torch.tensor([new_value]), data, settings, CLIP)
    assert loss.value.item() == pytest.approx(expected, rel=1e-5)


def test_the_total_is_policy_plus_value_minus_entropy() -> None:
    settings = PPO(normalize_advantages=False, value_coefficient=0.3, entropy_coefficient=0.1)
    loss, _ = one_step_loss(1.1, 1.0, settings)
    assert loss.entropy.item() == pytest.approx(math.log(2))
    assert loss.total.item() == pytest.approx(-1.1 - 0.1 * math.log(2))
    data = rows(torch.zeros(2), torch.zeros(2), returns=torch.tensor([1.0, 3.0]))
    loss = ppo_loss(Categorical(torch.zeros(2, 2)), torch.zeros(2), data, settings, CLIP)
    assert loss.total.item() == pytest.approx(0.3 * 5 - 0.1 * math.log(2))


@pytest.mark.parametrize("logit", [0.0, 2.0])
def test_a_larger_entropy_coefficient_lowers_the_loss_by_the_entropy(logit: float) -> None:
    distribution = Categorical(torch.tensor([[logit, 0.0]]))
    data = rows(distribution.log_prob(torch.tensor([0])), torch.ones(1))
    totals = [
        ppo_loss(distribution, torch.zeros(1), data, replace(RAW, entropy_coefficient=x), CLIP).total.item()
        for x in (0.0, 0.5)
    ]
    assert totals[1] - totals[0] == pytest.approx(-0.5 * distribution.entropy().item())


def test_of_two_policies_the_bonus_prefers_the_one_with_more_entropy() -> None:
    def total(logit: float) -> float:
        data = rows(torch.zeros(1), torch.zeros(1))
        settings = replace(RAW, entropy_coefficient=0.1)
        return ppo_loss(Categorical(torch.tensor([[logit, 0.0]])), torch.zeros(1), data, settings, CLIP).total.item()

    assert total(0.0) < total(1.0) < total(5.0)


def test_gradients_agree_with_an_implementation_on_torch_distributions() -> None:
    settings = PPO(entropy_coefficient=0.02, value_coefficient=0.3, value_clip_range=0.1)
    mean, log_std, values = (torch.randn(*shape).double().requires_grad_() for shape in ((64, 3), (3,), (64,)))
    actions = torch.randn(64, 3)
    distribution = DiagonalGaussian(mean, log_std)
    nearby = distribution.log_prob(actions).detach() + 0.3 * torch.randn(64)
    older = nearby + 0.6 * torch.randn(64)
    data = Minibatch(actions, older, nearby, torch.randn(64), torch.randn(64), torch.randn(64))
    assert 0.05 < (data.weights == MOST_WEIGHT).float().mean() < 0.3
    loss = ppo_loss(distribution, values, replace(data, advantages=normalized(data.advantages)), settings, CLIP)
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


def small_policy() -> Policy:
    return build_policy(OBSERVATIONS, spaces.Discrete(4), Network(hidden_sizes=(8,)), seed=1)


def batch_of(behaviour: Policy) -> Batch:
    """Steps that `behaviour` might have made, with rewards out of the blue."""
    shape = (NUM_STEPS, NUM_ENVS)
    obs = torch.randn(*shape, 3)
    with torch.no_grad():
        distribution, values = behaviour({"obs": obs.flatten(0, 1)})
        actions = distribution.sample(torch.randn(NUM_STEPS * NUM_ENVS, 4))
        log_probs = distribution.log_prob(actions)
    ends = torch.zeros(shape, dtype=torch.bool)
    steps = Transitions(torch.randn(shape), values.view(shape), torch.randn(shape), ends, ends)
    return Batch({"obs": obs}, actions.view(shape), log_probs.view(shape), steps)


def progress(learning_rate: float = 0.01, clip_range: float = CLIP, update: int = 0) -> PPOProgress:
    return PPOProgress(1, update, learning_rate, clip_range, is_decoupled=False)


def test_every_minibatch_is_one_step_and_every_gradient_is_clipped() -> None:
    policy = small_policy()
    draft, optimizer = recorded_draft(policy)
    settings = PPO(epochs=2, num_minibatches=8, max_gradient_norm=0.01)
    metrics = ppo_update(settings, draft, batch_of(policy), NUM_STEPS, progress())
    assert [gradient.norm().item() for gradient in optimizer.gradients] == pytest.approx([0.01] * 16, rel=1e-3)
    assert metrics["train/gradient_norm"] > 0.1


def test_every_epoch_visits_every_step_once_in_its_own_order() -> None:
    policy = small_policy()
    draft, _ = recorded_draft(policy)
    batch = batch_of(policy)
    seen: list[Tensor] = []
    policy.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]["obs"][:, 0]))
    ppo_update(PPO(epochs=3, num_minibatches=4), draft, batch, NUM_STEPS, progress())
    assert [len(minibatch) for minibatch in seen] == [8] * 12
    epochs = [torch.cat(seen[first : first + 4]) for first in (0, 4, 8)]
    for epoch in epochs:
        assert torch.equal(epoch.sort().values, batch.observations["obs"][..., 0].flatten().sort().values)
    assert not torch.equal(epochs[0], epochs[1])
    assert not torch.equal(epochs[1], epochs[2])


def test_an_update_stops_before_the_step_that_would_leave_the_target_divergence() -> None:
    behaviour = small_policy()
    batch = batch_of(behaviour)
    settings = PPO(epochs=10, num_minibatches=1, max_gradient_norm=100.0)

    def final_policy(settings: PPO, learning_rate: float = 0.2) -> tuple[Policy, RecordingSgd, dict[str, float]]:
        policy = small_policy()
        draft, optimizer = recorded_draft(policy)
        metrics = ppo_update(settings, draft, batch, NUM_STEPS, progress(learning_rate))
        return policy, optimizer, metrics

    divergences = [
        divergence(final_policy(replace(settings, epochs=epochs))[0], batch) for epochs in range(1, settings.epochs + 1)
    ]
    target = divergences[3] / 1.5 * 0.999  # the policy after the fourth step is just too far
    assert max(divergences[:3]) < 1.5 * target
    policy, optimizer, _ = final_policy(replace(settings, target_kl=target))
    assert len(optimizer.gradients) == 4
    assert divergence(policy, batch) == divergences[3]
    _, optimizer, _ = final_policy(replace(settings, target_kl=divergences[3] / 1.5 * 1.001))
    assert len(optimizer.gradients) > 4
    _, optimizer, _ = final_policy(replace(settings, target_kl=1e9))
    assert len(optimizer.gradients) == 10


def divergence(policy: Policy, batch: Batch) -> float:
    with torch.no_grad():
        distribution, _ = policy({"obs": batch.observations["obs"].flatten(0, 1)})
        log_ratio = distribution.log_prob(batch.actions.flatten()) - batch.log_probs.flatten()
    return float((log_ratio.exp() - 1 - log_ratio).mean())


@pytest.mark.parametrize("anneals", [True, False])
def test_learning_rate_and_clip_range_fall_linearly_to_zero_or_stay(anneals: bool) -> None:
    settings = PPO(
        learning_rate=0.2,
        clip_range=0.4,
        anneal_learning_rate=anneals,
        anneal_clip_range=anneals,
        epochs=1,
        num_minibatches=2,
    )
    experiment = Experiment("any", algorithm=settings, num_envs=NUM_ENVS, sync_interval=NUM_STEPS, total_steps=8 * 32)
    policy = small_policy()
    draft, optimizer = recorded_draft(policy)
    metrics = [improve(experiment, update, draft, policy, batch_of(policy)) for update in (0, 6)]
    factor = 0.25 if anneals else 1.0
    assert experiment.num_intervals == 8
    assert optimizer.learning_rates == pytest.approx([0.2, 0.2, 0.2 * factor, 0.2 * factor])
    assert [m["train/learning_rate"] for m in metrics] == pytest.approx([0.2, 0.2 * factor])
    assert [m["train/clip_range"] for m in metrics] == pytest.approx([0.4, 0.4 * factor])


def test_the_annealed_clip_range_is_the_one_that_clips() -> None:
    fractions = []
    for clip_range in (1e-4, 10.0):
        policy = small_policy()
        draft, _ = recorded_draft(policy)
        settings = PPO(epochs=4, num_minibatches=4)
        metrics = ppo_update(settings, draft, batch_of(policy), NUM_STEPS, progress(clip_range=clip_range))
        fractions.append(metrics["train/clip_fraction"])
    assert fractions[0] > 0.5
    assert fractions[1] == 0


@pytest.mark.parametrize("distance", [0.0, 0.5])
@pytest.mark.parametrize("is_decoupled", [True, False])
def test_the_clip_is_around_the_version_that_the_update_starts_from_if_it_is_decoupled(
    is_decoupled: bool, distance: float
) -> None:
    """One minibatch, so its divergence is the distance between the start and what the clip is around."""
    behaviour = small_policy()
    batch = batch_of(behaviour)
    start = moved(behaviour, distance)
    draft, _ = recorded_draft(start)
    settings = PPO(epochs=1, num_minibatches=1)
    between = divergence(start, batch)
    assert between == pytest.approx(0.0, abs=1e-7) if distance == 0 else between > 0.01
    metrics = ppo_update(settings, draft, batch, NUM_STEPS, replace(progress(), is_decoupled=is_decoupled))
    assert metrics["train/approx_kl"] == pytest.approx(0.0 if is_decoupled else between, abs=1e-7)


def moved(policy: Policy, distance: float) -> Policy:
    result = small_policy()
    for parameter, start in zip(result.parameters(), policy.parameters(), strict=True):
        parameter.data = start.detach() + distance * torch.randn_like(start)
    return result


def test_the_decoupled_gradient_agrees_with_an_independent_one_for_data_of_an_older_version() -> None:
    """d/d theta of mean(weight * ratio * advantage) at ratio 1, with the current version's values."""
    behaviour = small_policy()
    batch, start = batch_of(behaviour), moved(behaviour, 0.3)
    settings = PPO(epochs=1, num_minibatches=1, max_gradient_norm=1e6, normalize_advantages=False, value_clip_range=0.1)
    draft, optimizer = recorded_draft(moved(start, 0.0))
    ppo_update(settings, draft, batch, NUM_STEPS, replace(progress(), is_decoupled=True))

    distribution, values = start({"obs": batch.observations["obs"].flatten(0, 1)})
    log_probs = distribution.log_prob(batch.actions.flatten())
    values_TB = values.detach().view(NUM_STEPS, NUM_ENVS)
    last = batch.steps.next_values_TB[-1] + values_TB[-1] - batch.steps.values_TB[-1]
    next_values_TB = torch.cat([values_TB[1:], last[None]])
    errors_TB = batch.steps.rewards_TB + settings.discount * next_values_TB - values_TB
    decay = settings.discount * settings.gae_lambda
    powers = decay ** torch.arange(NUM_STEPS)
    advantages = torch.stack([powers[: NUM_STEPS - t] @ errors_TB[t:] for t in range(NUM_STEPS)]).flatten()
    weights = (log_probs.detach() - batch.log_probs.flatten()).exp().clamp(max=2)
    assert (weights - 1).abs().mean() > 0.05
    loss = -(weights * advantages * log_probs).mean()  # its gradient is that of the ratio, which is 1
    loss = loss + settings.value_coefficient * (values - (values.detach() + advantages)).square().mean()
    torch.testing.assert_close(optimizer.gradients[0], flat_gradient(loss, start), rtol=1e-4, atol=1e-6)


def test_weights_have_a_bound_and_are_exactly_one_without_a_lag() -> None:
    log_probs = torch.tensor([-1.0, -1.0, -1.0, -1.0])
    older = torch.tensor([-1.0, -1.0 - math.log(1.5), -1.0 + math.log(4.0), -9.0])
    data = replace(rows(log_probs, torch.ones(4)), behaviour_log_probs=older)
    assert data.weights.tolist() == [1.0, pytest.approx(1.5), pytest.approx(0.25), 2.0]


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_an_action_that_was_as_good_as_given_up_and_comes_back_breaks_nothing(advantage: float) -> None:
    """Its weight is 0 and its ratio beyond the largest number."""
    logits = torch.tensor([[-100.0, 0.0]], requires_grad=True)
    data = rows(torch.tensor([-200.0]), torch.tensor([advantage]))
    data = replace(data, behaviour_log_probs=torch.tensor([-1.0]))
    loss = ppo_loss(Categorical(logits), torch.zeros(1), data, RAW, CLIP)
    loss.policy.backward()  # type: ignore[no-untyped-call]
    assert loss.policy == 0
    assert logits.grad is not None
    assert logits.grad.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("schedule", ["hts", "sync", "lockstep", "async"])
@pytest.mark.parametrize("lag_correction", ["auto", "decoupled", "none"])
def test_the_objective_is_decoupled_where_there_is_a_lag_or_it_is_asked_for(
    lag_correction: Literal["auto", "decoupled", "none"], schedule: Literal["hts", "sync", "lockstep", "async"]
) -> None:
    behaviour = small_policy()
    batch = batch_of(behaviour)
    settings = PPO(epochs=1, num_minibatches=1, lag_correction=lag_correction)
    experiment = Experiment(
        "any", algorithm=settings, schedule=schedule, num_envs=NUM_ENVS, sync_interval=NUM_STEPS, total_steps=32
    )
    draft, _ = recorded_draft(moved(behaviour, 0.5))
    divergence = improve(experiment, 0, draft, behaviour, batch)["train/approx_kl"]
    is_expected = lag_correction == "decoupled" or (lag_correction == "auto" and schedule in ("hts", "async"))
    assert (abs(divergence) < 1e-7) == is_expected


@pytest.mark.parametrize("is_decoupled", [True, False])
def test_without_a_lag_the_first_gradient_is_that_of_a2c(is_decoupled: bool) -> None:
    policy = small_policy()
    batch = batch_of(policy)
    settings = PPO(epochs=1, num_minibatches=1, max_gradient_norm=1e6, normalize_advantages=False)
    steps = batch.steps.valued_by(batch.steps.values_TB)
    draft, optimizer = recorded_draft(moved(policy, 0.0))
    ppo_update(settings, draft, replace(batch, steps=steps), NUM_STEPS, replace(progress(), is_decoupled=is_decoupled))
    expected = policy_gradient(policy, replace(batch, steps=steps), settings)
    torch.testing.assert_close(optimizer.gradients[0], expected, rtol=1e-4, atol=1e-6)


def policy_gradient(policy: Policy, batch: Batch, settings: PPO) -> Tensor:
    """The gradient of A2C's loss at the policy that made the data."""
    advantages_TB = gae(batch.steps, settings.discount, settings.gae_lambda, NUM_STEPS)
    distribution, values = policy({"obs": batch.observations["obs"].flatten(0, 1)})
    loss = -(advantages_TB.flatten() * distribution.log_prob(batch.actions.flatten())).mean()
    targets = (advantages_TB + batch.steps.values_TB).flatten()
    loss = loss + settings.value_coefficient * nn.functional.mse_loss(values, targets)
    return flat_gradient(loss, policy)


def flat_gradient(loss: Tensor, policy: Policy) -> Tensor:
    layout = FlatLayout.of(policy)
    flat = torch.zeros(layout.size)
    gradients = torch.autograd.grad(loss, list(policy.parameters()))
    for view, gradient in zip(layout.views(flat, policy), gradients, strict=True):
        view.copy_(gradient)
    return flat
