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

from htsrl.algorithms.batch import Batch
from htsrl.algorithms.ppo import ppo_loss, ppo_update
from htsrl.algorithms.returns import gae
from htsrl.algorithms.update import improve
from htsrl.config import PPO, Experiment
from htsrl.dataflow.parameters import FlatLayout
from htsrl.policies.distributions import Categorical
from htsrl.policies.policy import Policy

pytestmark = pytest.mark.usefixtures("fixed_seed")


@pytest.mark.parametrize("epochs", [1, 2, 3])
@pytest.mark.parametrize("distance", [0.0, 0.5])
@pytest.mark.parametrize("is_decoupled", [True, False])
def test_the_clip_of_later_epochs_is_around_what_the_first_one_saw_if_it_is_decoupled(
    is_decoupled: bool, distance: float, epochs: int
) -> None:
    """Nothing moves, so divergences are the distance between the start and what the clip is around."""
    behaviour = small_policy()
    batch = batch_of(behaviour)
    start = moved(behaviour, distance)
    draft, _ = recorded_draft(start)
    settings = PPO(epochs=epochs, num_minibatches=2)
    between = divergence(start, batch)
    assert between == pytest.approx(0.0, abs=1e-7) if distance == 0 else between > 0.01
    still = replace(progress(learning_rate=0.0), is_decoupled=is_decoupled)
    metrics = ppo_update(settings, draft, batch, NUM_STEPS, still)
    expected = between / epochs if is_decoupled else between
    assert metrics["train/approx_kl"] == pytest.approx(expected, abs=1e-7)


def moved(policy: Policy, distance: float) -> Policy:
    result = small_policy()
    for parameter, start in zip(result.parameters(), policy.parameters(), strict=True):
        parameter.data = start.detach() + distance * torch.randn_like(start)
    return result


def test_the_gradients_of_both_epochs_agree_with_independent_ones_for_data_of_an_older_version() -> None:
    """At the same parameters, for nothing moves: first within twice the clip around the old ones, then at ratio 1."""
    behaviour = small_policy()
    batch, start = batch_of(behaviour), moved(behaviour, 0.3)
    settings = PPO(epochs=2, num_minibatches=1, max_gradient_norm=1e6, normalize_advantages=False, value_clip_range=0.1)
    draft, optimizer = recorded_draft(moved(start, 0.0))
    ppo_update(settings, draft, batch, NUM_STEPS, replace(progress(learning_rate=0.0), is_decoupled=True))

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


@pytest.mark.parametrize(
    ("is_decoupled", "learning_rate", "num_steps"), [(True, 0.0, 6), (True, 1.0, 2), (False, 0.0, 0)]
)
def test_a_decoupled_update_ends_by_how_far_it_goes_and_not_by_how_far_its_data_are_away(
    is_decoupled: bool, learning_rate: float, num_steps: int
) -> None:
    """Else every other one would stand still, for the one before it has gone as far as it may."""
    behaviour = small_policy()
    batch, start = batch_of(behaviour), moved(behaviour, 0.5)
    settings = PPO(epochs=3, num_minibatches=2, target_kl=1e-5)
    draft, optimizer = recorded_draft(start)
    assert divergence(start, batch) > 0.01
    ppo_update(settings, draft, batch, NUM_STEPS, replace(progress(learning_rate), is_decoupled=is_decoupled))
    assert len(optimizer.gradients) == num_steps


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
    loss = ppo_loss(Categorical(logits), torch.zeros(1), data, RAW, clips(RAW))
    loss.policy.backward()  # type: ignore[no-untyped-call]
    assert loss.policy == 0
    assert logits.grad is not None
    assert logits.grad.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("schedule", ["hts", "sync", "lockstep", "async"])
@pytest.mark.parametrize("lag_correction", ["auto", "decoupled", "none"])
def test_the_objective_is_decoupled_where_there_is_a_lag_unless_nothing_is_to_be_done_about_it(
    lag_correction: Literal["auto", "decoupled", "none"], schedule: Literal["hts", "sync", "lockstep", "async"]
) -> None:
    behaviour = small_policy()
    batch = batch_of(behaviour)
    settings = PPO(epochs=2, num_minibatches=1, learning_rate=1e-12, lag_correction=lag_correction)
    experiment = Experiment(
        "any", algorithm=settings, schedule=schedule, num_envs=NUM_ENVS, sync_interval=NUM_STEPS, total_steps=32
    )
    start = moved(behaviour, 0.5)
    draft, _ = recorded_draft(start)
    is_decoupled = lag_correction != "none" and schedule in ("hts", "async")
    found = improve(experiment, 0, draft, behaviour, batch)["train/approx_kl"]
    assert found == pytest.approx(divergence(start, batch) / (2 if is_decoupled else 1), abs=1e-6)


@pytest.mark.parametrize("is_decoupled", [True, False])
def test_without_a_lag_the_first_gradient_is_that_of_a2c(is_decoupled: bool) -> None:
    policy = small_policy()
    batch = batch_of(policy)
    settings = PPO(epochs=1, num_minibatches=1, max_gradient_norm=1e6, normalize_advantages=False)
    draft, optimizer = recorded_draft(moved(policy, 0.0))
    ppo_update(settings, draft, batch, NUM_STEPS, replace(progress(), is_decoupled=is_decoupled))
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
