"""PPO on data of an older version: what its clip is around, its weights, and A2C's gradient where there is no lag."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import pytest
import torch
from ppo_batches import CLIP, NUM_ENVS, NUM_STEPS, RAW, batch_of, clips, divergence, progress, rows, small_policy
from recorded_draft import recorded_draft
from torch import Tensor, nn
from updates import improve, ppo_update

from htsrl.algorithms.batch import Batch
from htsrl.algorithms.lag_correction import PPOCorrection
from htsrl.algorithms.ppo import PPO
from htsrl.algorithms.ppo.algorithm import ppo_loss
from htsrl.algorithms.returns import gae
from htsrl.config import Experiment
from htsrl.dataflow.parameters import FlatLayout
from htsrl.policies.distributions import Categorical
from htsrl.policies.policy import Policy

CLIP_CENTRES: tuple[PPOCorrection, ...] = ("none", "recentered", "decoupled")

pytestmark = pytest.mark.usefixtures("fixed_seed")


@pytest.mark.parametrize("epochs", [1, 2, 3])
@pytest.mark.parametrize("distance", [0.0, 0.5])
@pytest.mark.parametrize("correction", CLIP_CENTRES)
def test_the_clip_is_around_the_policy_that_the_correction_says(
    correction: PPOCorrection, distance: float, epochs: int
) -> None:
    """Nothing moves, so divergences are the distance between the start and what the clip is around: in all epochs the
    version that acted, or only in the first, or never."""
    behaviour = small_policy()
    batch = batch_of(behaviour)
    start = moved(behaviour, distance)
    draft, _ = recorded_draft(start)
    settings = PPO(epochs=epochs, num_minibatches=2)
    between = divergence(start, batch)
    assert between == pytest.approx(0.0, abs=1e-7) if distance == 0 else between > 0.01
    still = replace(progress(learning_rate=0.0), correction=correction)
    metrics = ppo_update(settings, draft, batch, NUM_STEPS, still)
    expected = {"none": between, "recentered": between / epochs, "decoupled": 0.0}[correction]
    assert metrics["train/approx_kl"] == pytest.approx(expected, abs=1e-7)


def moved(policy: Policy, distance: float) -> Policy:
    result = small_policy()
    for parameter, start in zip(result.parameters(), policy.parameters(), strict=True):
        parameter.data = start.detach() + distance * torch.randn_like(start)
    return result


def test_recentered_gradients_of_both_epochs_agree_with_independent_ones() -> None:
    """At the same parameters, for nothing moves: first within twice the clip around the old ones, then at ratio 1."""
    behaviour = small_policy()
    batch, start = batch_of(behaviour), moved(behaviour, 0.3)
    settings = PPO(epochs=2, num_minibatches=1, max_gradient_norm=1e6, normalize_advantages=False, value_clip_range=0.1)
    draft, optimizer = recorded_draft(moved(start, 0.0))
    ppo_update(settings, draft, batch, NUM_STEPS, replace(progress(learning_rate=0.0), correction="recentered"))

    distribution, values = start({"obs": batch.observations["obs"].flatten(0, 1)})
    log_probs = distribution.log_prob(batch.actions.flatten())
    old_values, old_log_probs = batch.steps.values_TB.flatten(), batch.log_probs.flatten()
    errors_TB = batch.steps.rewards_TB + settings.discount * batch.steps.next_values_TB - batch.steps.values_TB
    powers = (settings.discount * settings.gae_lambda) ** torch.arange(NUM_STEPS)
    advantages = torch.stack([powers[: NUM_STEPS - t] @ errors_TB[t:] for t in range(NUM_STEPS)]).flatten()
    returns = advantages + old_values

    ratios = (log_probs - old_log_probs).exp()
    is_beyond = torch.where(advantages > 0, ratios > 1 + 2 * CLIP, ratios < 1 - 2 * CLIP)
    near = old_values + (values - old_values).clamp(-0.2, 0.2)
    errors = torch.max((values - returns).square(), (near - returns).square())
    first = -(advantages * ratios * ~is_beyond).mean() + settings.value_coefficient * errors.mean()
    torch.testing.assert_close(optimizer.gradients[0], flat_gradient(first, start), rtol=1e-4, atol=1e-6)
    assert is_beyond.any()

    distribution, values = start({"obs": batch.observations["obs"].flatten(0, 1)})
    log_probs = distribution.log_prob(batch.actions.flatten())
    weights = (log_probs.detach() - old_log_probs).exp().clamp(max=2)
    assert (weights - 1).abs().mean() > 0.05
    second = -(weights * advantages * log_probs).mean()  # its gradient is that of the ratio, which is 1
    second = second + settings.value_coefficient * (values - returns).square().mean()
    torch.testing.assert_close(optimizer.gradients[1], flat_gradient(second, start), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("unroll_steps", [1, 2, 4, NUM_STEPS])
def test_decoupled_gradients_agree_with_an_independent_one(unroll_steps: int) -> None:
    """At the version that the update starts from, for nothing moves: ratios are 1, values and weights are its own."""
    behaviour = small_policy()
    batch, start = batch_of(behaviour), moved(behaviour, 0.3)
    settings = PPO(epochs=2, num_minibatches=1, max_gradient_norm=1e6, normalize_advantages=False, value_clip_range=0.1)
    settings = replace(settings, max_importance_weight=1.5)
    draft, optimizer = recorded_draft(moved(start, 0.0))
    still = replace(progress(learning_rate=0.0), correction="decoupled")
    ppo_update(settings, draft, batch, unroll_steps, still)

    distribution, values = start({"obs": batch.observations["obs"].flatten(0, 1)})
    log_probs = distribution.log_prob(batch.actions.flatten())
    values_TB = values.detach().view(NUM_STEPS, NUM_ENVS)
    # Of what followed the last step only the old value is known; it is taken to have moved as the last step's has.
    last = batch.steps.next_values_TB[-1] + values_TB[-1] - batch.steps.values_TB[-1]
    errors_TB = batch.steps.rewards_TB + settings.discount * torch.cat([values_TB[1:], last[None]]) - values_TB
    decay = settings.discount * settings.gae_lambda
    advantages_TB = errors_TB.clone()
    for t in reversed(range(NUM_STEPS - 1)):
        if (t + 1) % unroll_steps:
            advantages_TB[t] += decay * advantages_TB[t + 1]
    weights = (log_probs.detach() - batch.log_probs.flatten()).exp().clamp(max=1.5)
    assert (weights == 1.5).any()
    loss = -(weights * advantages_TB.flatten() * log_probs).mean()  # its gradient is that of the ratio, which is 1
    returns = (advantages_TB + values_TB).flatten()
    loss = loss + settings.value_coefficient * (values - returns).square().mean()
    expected = flat_gradient(loss, start)
    for gradient in optimizer.gradients:
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)


def test_a_decoupled_update_is_clipped_around_its_start_as_it_moves_on() -> None:
    """Two epochs of one minibatch: the second gradient is taken where the first step has led."""
    behaviour = small_policy()
    batch, start = batch_of(behaviour), moved(behaviour, 0.3)
    settings = PPO(epochs=2, num_minibatches=1, max_gradient_norm=1e6, normalize_advantages=False, value_coefficient=0)
    draft, optimizer = recorded_draft(moved(start, 0.0))
    ppo_update(settings, draft, batch, NUM_STEPS, replace(progress(learning_rate=3.0), correction="decoupled"))
    then = moved(start, 0.0)
    for parameter, view in zip(then.parameters(), FlatLayout.of(then).views(optimizer.gradients[0], then), strict=True):
        parameter.data -= 3.0 * view
    obs, actions = {"obs": batch.observations["obs"].flatten(0, 1)}, batch.actions.flatten()
    before, values = (x.detach() for x in log_probs_and_values(start, obs, actions))
    log_probs, moved_values = log_probs_and_values(then, obs, actions)
    steps = batch.steps.valued_by(values.view(NUM_STEPS, NUM_ENVS))
    gains = gae(steps, settings.discount, settings.gae_lambda, NUM_STEPS).flatten()
    ratios, weights = (log_probs - before).exp(), (before - batch.log_probs.flatten()).exp().clamp(max=2)
    is_beyond = torch.where(gains > 0, ratios > 1 + CLIP, ratios < 1 - CLIP)
    assert 0 < is_beyond.sum() < len(is_beyond)
    loss = -(weights * gains * ratios * ~is_beyond).mean() + 0.0 * moved_values.mean()
    expected = flat_gradient(loss, then)
    torch.testing.assert_close(optimizer.gradients[1], expected, rtol=1e-4, atol=1e-6)


def log_probs_and_values(policy: Policy, obs: dict[str, Tensor], actions: Tensor) -> tuple[Tensor, Tensor]:
    distribution, values = policy(obs)
    return distribution.log_prob(actions), values


@pytest.mark.parametrize(
    ("correction", "learning_rate", "num_steps"),
    [("recentered", 0.0, 6), ("recentered", 1.0, 2), ("decoupled", 0.0, 6), ("decoupled", 1.0, 1), ("none", 0.0, 0)],
)
def test_an_update_ends_by_how_far_it_goes_and_not_by_how_far_its_data_are_away_if_that_is_corrected(
    correction: PPOCorrection, learning_rate: float, num_steps: int
) -> None:
    """Else every other one would stand still, for the one before it has gone as far as it may."""
    behaviour = small_policy()
    batch, start = batch_of(behaviour), moved(behaviour, 0.5)
    settings = PPO(epochs=3, num_minibatches=2, target_kl=1e-5)
    draft, optimizer = recorded_draft(start)
    assert divergence(start, batch) > 0.01
    ppo_update(settings, draft, batch, NUM_STEPS, replace(progress(learning_rate), correction=correction))
    assert len(optimizer.gradients) == num_steps


def test_weights_have_a_bound_and_are_exactly_one_without_a_lag() -> None:
    log_probs = torch.tensor([-1.0, -1.0, -1.0, -1.0])
    older = torch.tensor([-1.0, -1.0 - math.log(1.5), -1.0 + math.log(4.0), -9.0])
    data = replace(rows(log_probs, torch.ones(4)), behaviour_log_probs=older)
    assert data.weights(2.0).tolist() == [1.0, pytest.approx(1.5), pytest.approx(0.25), 2.0]
    assert data.weights(1.0).tolist() == [1.0, 1.0, pytest.approx(0.25), 1.0]


@pytest.mark.parametrize("maximum", [1.0, 3.0])
def test_the_bound_of_a_weight_is_the_setting(maximum: float) -> None:
    uniform = Categorical(torch.zeros(1, 2))
    data = replace(rows(torch.tensor([-math.log(2)]), torch.ones(1)), behaviour_log_probs=torch.tensor([-9.0]))
    settings = replace(RAW, max_importance_weight=maximum)
    assert ppo_loss(uniform, torch.zeros(1), data, settings, clips(settings)).policy.item() == pytest.approx(-maximum)


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_an_action_that_was_as_good_as_given_up_and_comes_back_breaks_nothing(advantage: float) -> None:
    """Its weight is 0 and its ratio beyond the largest number."""
    logits = torch.tensor([[-100.0, 0.0]], requires_grad=True)
    data = rows(torch.tensor([-200.0]), torch.tensor([advantage]))
    data = replace(data, behaviour_log_probs=torch.tensor([-1.0]))
    loss = ppo_loss(Categorical(logits), torch.zeros(1), data, RAW, clips(RAW))
    loss.policy.backward()  # type: ignore[no-untyped-call]
    assert loss.policy == 0
    assert logits.grad is not None
    assert logits.grad.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("schedule", ["hts", "sync", "lockstep", "async"])
@pytest.mark.parametrize("lag_correction", ["auto", "recentered", "decoupled", "none"])
def test_the_lag_is_corrected_where_there_is_one(
    lag_correction: Literal["auto", "recentered", "decoupled", "none"],
    schedule: Literal["hts", "sync", "lockstep", "async"],
) -> None:
    behaviour = small_policy()
    batch = batch_of(behaviour)
    settings = PPO(epochs=2, num_minibatches=1, learning_rate=1e-12, lag_correction=lag_correction)
    experiment = Experiment(
        "any", algorithm=settings, schedule=schedule, num_envs=NUM_ENVS, sync_interval=NUM_STEPS, total_steps=32
    )
    start = moved(behaviour, 0.5)
    draft, _ = recorded_draft(start)
    shares = {"auto": 0.5, "recentered": 0.5, "decoupled": 0.0, "none": 1.0}
    share = shares[lag_correction] if schedule in ("hts", "async") else 1.0
    found = improve(experiment, 0, draft, behaviour, batch)["train/approx_kl"]
    assert found == pytest.approx(share * divergence(start, batch), abs=1e-6)


@pytest.mark.parametrize("correction", CLIP_CENTRES)
def test_without_a_lag_the_first_gradient_is_that_of_a2c(correction: PPOCorrection) -> None:
    policy = small_policy()
    batch = batch_of(policy)
    settings = PPO(epochs=1, num_minibatches=1, max_gradient_norm=1e6, normalize_advantages=False)
    draft, optimizer = recorded_draft(moved(policy, 0.0))
    ppo_update(settings, draft, batch, NUM_STEPS, replace(progress(), correction=correction))
    expected = policy_gradient(policy, batch, settings)
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
