"""What A2C makes of data that older versions made: four corrections, alike without a lag and unlike with one."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from gymnasium import spaces
from recorded_draft import recorded_draft
from test_returns import Trajectories
from test_vtrace import slow_vtrace
from torch import Tensor, nn
from updates import Lengths, a2c_update

from htsrl.algorithms.a2c import A2C
from htsrl.algorithms.a2c.algorithm import a2c_loss
from htsrl.algorithms.batch import Batch
from htsrl.algorithms.lag_correction import correction_of
from htsrl.algorithms.returns import Transitions, gae, true_next_values
from htsrl.config import Network
from htsrl.dataflow.parameters import FlatLayout
from htsrl.policies.policy import Policy, build_policy

Correction = Literal["auto", "delayed_gradient", "importance", "vtrace", "none"]
CORRECTIONS: tuple[Correction, ...] = ("delayed_gradient", "importance", "vtrace", "none")
NUM_STEPS, NUM_ENVS = 8, 5
SETTINGS = A2C(gae_lambda=0.9, discount=0.9, entropy_coefficient=0.02, max_gradient_norm=1e6)
UNROLL = Lengths(NUM_STEPS, 1)


pytestmark = pytest.mark.usefixtures("fixed_seed")


def policy_of(seed: int) -> Policy:
    observations = spaces.Box(-1.0, 1.0, (3,), np.float32)
    policy = build_policy(observations, spaces.Discrete(4), Network(hidden_sizes=(8,)), seed)
    head = policy.action_head
    assert isinstance(head, nn.Linear)
    with torch.no_grad():
        head.weight.mul_(100.0)  # it is made small, so that at first all policies are alike
    return policy


def batch_made_by(policy: Policy) -> Batch:
    shape = (NUM_STEPS, NUM_ENVS)
    observations, actions = torch.randn(*shape, 3), torch.randint(0, 4, shape)
    with torch.no_grad():
        distribution, values = policy({"obs": observations.flatten(0, 1)})
    values_TB, truncated_TB = values.view(shape), torch.rand(shape) < 0.1
    return Batch(
        observations={"obs": observations},
        actions=actions,
        log_probs=distribution.log_prob(actions.flatten()).view(shape),
        steps=Transitions(
            rewards_TB=torch.randn(shape),
            values_TB=values_TB,
            next_values_TB=true_next_values(values_TB, torch.randn(shape), truncated_TB),
            terminated_TB=torch.rand(shape) < 0.1,
            truncated_TB=truncated_TB,
        ),
    )


def gradient(batch: Batch, settings: A2C, behaviour_seed: int | None, current_seed: int) -> Tensor:
    """What a draft of the current policy is moved by; without a seed there is no one behaviour policy."""
    current, behaviour = policy_of(current_seed), policy_of(behaviour_seed or 0)
    draft, optimizer = recorded_draft(current)
    correction = correction_of(settings, mixes_versions=behaviour_seed is None)
    made_by = None if behaviour_seed is None else behaviour
    a2c_update(settings, draft, made_by, batch, UNROLL, learning_rate=0.1, correction=correction)
    (only,) = optimizer.gradients
    return only


def gradient_of_loss(batch: Batch, seed: int, advantages: Tensor, returns: Tensor) -> Tensor:
    """Independent of the update: autograd over the loss at one policy."""
    return gradient_at(policy_of(seed), batch, advantages, returns)


def gradient_at(policy: Policy, batch: Batch, advantages: Tensor, returns: Tensor) -> Tensor:
    distribution, values = policy({"obs": batch.observations["obs"].flatten(0, 1)})
    loss = a2c_loss(distribution, values, batch.actions.flatten(), advantages, returns, SETTINGS)
    gradients = torch.autograd.grad(loss.total, list(policy.parameters()))
    layout = FlatLayout.of(policy)
    flat = torch.zeros(layout.size)
    for view, taken in zip(layout.views(flat, policy), gradients, strict=True):
        view.copy_(taken)
    return flat


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("correction", CORRECTIONS)
def test_without_a_lag_all_corrections_give_one_gradient(correction: Correction, normalize: bool) -> None:
    batch, settings = batch_made_by(policy_of(1)), replace(SETTINGS, normalize_advantages=normalize)
    plain = gradient(batch, replace(settings, lag_correction="none"), 1, 1)
    corrected = gradient(batch, replace(settings, lag_correction=correction), 1, 1)
    assert plain.norm() > 0.01
    torch.testing.assert_close(corrected, plain, rtol=1e-4, atol=1e-6)


def test_with_a_lag_every_correction_gives_another_gradient() -> None:
    batch = batch_made_by(policy_of(1))
    gradients = [gradient(batch, replace(SETTINGS, lag_correction=correction), 1, 2) for correction in CORRECTIONS]
    for i, one in enumerate(gradients):
        for other in gradients[:i]:
            assert (one - other).norm() > 0.01 * one.norm()


def ratios(batch: Batch, seed: int) -> tuple[Tensor, Tensor]:
    """Of the policy with `seed` to the one that acted, by step; and its values."""
    with torch.no_grad():
        distribution, values = policy_of(seed)({"obs": batch.observations["obs"].flatten(0, 1)})
    return (distribution.log_prob(batch.actions.flatten()) - batch.log_probs.flatten()).exp(), values


def test_none_takes_the_data_for_new() -> None:
    batch = batch_made_by(policy_of(1))
    advantages_TB = gae(batch.steps, SETTINGS.discount, SETTINGS.gae_lambda, NUM_STEPS)
    expected = gradient_of_loss(batch, 2, advantages_TB.flatten(), (advantages_TB + batch.steps.values_TB).flatten())
    torch.testing.assert_close(gradient(batch, replace(SETTINGS, lag_correction="none"), None, 2), expected)


def test_importance_weighs_advantages_by_how_much_less_likely_an_action_has_become() -> None:
    batch = batch_made_by(policy_of(1))
    advantages_TB = gae(batch.steps, SETTINGS.discount, SETTINGS.gae_lambda, NUM_STEPS)
    ratio, _ = ratios(batch, 2)
    assert (ratio > 1).any()
    assert (ratio < 0.9).any()
    weighted = torch.where(ratio > 1, 1.0, ratio) * advantages_TB.flatten()
    expected = gradient_of_loss(batch, 2, weighted, (advantages_TB + batch.steps.values_TB).flatten())
    torch.testing.assert_close(gradient(batch, replace(SETTINGS, lag_correction="importance"), None, 2), expected)


@pytest.mark.parametrize("correction", ["vtrace", "auto"])
def test_vtrace_bootstraps_from_the_current_values_and_moves_those_of_what_only_the_actor_saw(
    correction: Correction,
) -> None:
    batch = batch_made_by(policy_of(1))
    ratio, values = ratios(batch, 2)
    steps, values_TB = batch.steps, values.view(NUM_STEPS, NUM_ENVS)
    next_values_TB = steps.next_values_TB.clone()
    for t, env in np.ndindex(NUM_STEPS, NUM_ENVS):
        if t == NUM_STEPS - 1 or steps.truncated_TB[t, env]:
            next_values_TB[t, env] += values_TB[t, env] - steps.values_TB[t, env]
        else:
            next_values_TB[t, env] = values_TB[t + 1, env]
    current = replace(steps, values_TB=values_TB, next_values_TB=next_values_TB)
    data = Trajectories(current, NUM_STEPS, SETTINGS.discount, SETTINGS.gae_lambda)
    returns, advantages = slow_vtrace(data, ratio.log().view_as(values_TB))
    weighted = ratio.clamp(max=1.0) * torch.from_numpy(advantages).float().flatten()
    expected = gradient_of_loss(batch, 2, weighted, torch.from_numpy(returns).float().flatten())
    made = gradient(batch, replace(SETTINGS, lag_correction=correction), None, 2)
    torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-6)


def test_auto_is_the_delayed_gradient_where_one_version_made_the_data() -> None:
    batch = batch_made_by(policy_of(1))
    delayed = gradient(batch, replace(SETTINGS, lag_correction="delayed_gradient"), 1, 2)
    assert gradient(batch, replace(SETTINGS, lag_correction="auto"), 1, 2).equal(delayed)


def test_a_weight_is_not_undone_by_normalizing() -> None:
    """An action that has become impossible moves the policy by nothing, whatever the mean of the advantages is."""
    batch = batch_made_by(policy_of(1))
    impossible = replace(batch, log_probs=torch.full_like(batch.log_probs, 60.0))
    settings = replace(SETTINGS, normalize_advantages=True, value_coefficient=0.0, entropy_coefficient=0.0)
    for correction in ("importance", "vtrace"):
        moved_by = gradient(impossible, replace(settings, lag_correction=correction), None, 2)
        assert moved_by.abs().max() < 1e-20
