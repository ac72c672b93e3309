"""V-trace in unrolls shorter than the interval: each bootstraps from what the current policy says of the next step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from recorded_draft import recorded_draft
from test_lag_corrections import NUM_ENVS, NUM_STEPS, SETTINGS, batch_made_by, gradient_at, policy_of
from torch import Tensor, nn
from updates import Lengths, a2c_objective, a2c_update

from htsrl.algorithms.a2c.algorithm import A2CTargets
from htsrl.algorithms.batch import Batch
from htsrl.algorithms.returns import Transitions
from htsrl.config import Network
from htsrl.dataflow.parameters import FlatLayout
from htsrl.policies.policy import Policy, build_policy

UNROLLS = [1, 2, 4, NUM_STEPS]
LEARNING_RATE = 0.05

pytestmark = pytest.mark.usefixtures("fixed_seed")


def assess(policy: Policy, batch: Batch) -> tuple[Tensor, Tensor]:
    """Ratios to the policy that acted, and values, of all steps."""
    with torch.no_grad():
        distribution, values = policy({"obs": batch.observations["obs"].flatten(0, 1)})
    log_ratios = distribution.log_prob(batch.actions.flatten()) - batch.log_probs.flatten()
    return log_ratios.exp().view(NUM_STEPS, NUM_ENVS), values.view(NUM_STEPS, NUM_ENVS)


def plain_vtrace(batch: Batch, unroll: range, policy: Policy) -> tuple[Tensor, Tensor]:
    """Weighted advantages and returns of the steps of an unroll, one number after another."""
    steps, (ratios, values) = batch.steps, assess(policy, batch)
    gamma, decay = SETTINGS.discount, SETTINGS.gae_lambda
    advantages, returns = np.zeros((len(unroll), NUM_ENVS)), np.zeros((len(unroll), NUM_ENVS))
    for env in range(NUM_ENVS):
        beyond = 0.0  # how far the next step's return is from its value
        for t in reversed(unroll):
            rho, value = min(1.0, float(ratios[t, env])), float(values[t, env])
            is_terminated = steps.terminated_TB[t, env]
            if t + 1 == NUM_STEPS or steps.truncated_TB[t, env]:  # what followed is not in the batch
                next_value = float(steps.next_values_TB[t, env]) + value - float(steps.values_TB[t, env])
            else:
                next_value = float(values[t + 1, env])
            if is_terminated or steps.truncated_TB[t, env]:
                beyond = 0.0
            error = float(steps.rewards_TB[t, env]) + (0.0 if is_terminated else gamma * next_value) - value
            advantages[t - unroll.start, env] = rho * (error + gamma * decay * beyond)
            beyond = rho * error + gamma * decay * rho * beyond
            returns[t - unroll.start, env] = value + beyond
    return torch.from_numpy(advantages).float().flatten(), torch.from_numpy(returns).float().flatten()


@pytest.mark.parametrize("unroll_steps", UNROLLS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_gradients_of_all_unrolls_agree_with_a_plain_loop_while_the_policy_moves(
    seed: int, unroll_steps: int
) -> None:
    torch.manual_seed(seed)
    batch = batch_made_by(policy_of(1))
    assert (batch.steps.truncated_TB | batch.steps.terminated_TB).any()
    draft, optimizer = recorded_draft(policy_of(2))
    a2c_update(SETTINGS, draft, None, batch, Lengths(unroll_steps, 1), LEARNING_RATE, "vtrace")
    policy = policy_of(2)
    assert len(optimizer.gradients) == NUM_STEPS // unroll_steps
    for first, made in zip(range(0, NUM_STEPS, unroll_steps), optimizer.gradients, strict=True):
        unroll = range(first, first + unroll_steps)
        within = slice(unroll.start, unroll.stop)
        part = replace(batch, observations={"obs": batch.observations["obs"][within]}, actions=batch.actions[within])
        expected = gradient_at(policy, part, *plain_vtrace(batch, unroll, policy))
        torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-5)
        for parameter, view in zip(policy.parameters(), FlatLayout.of(policy).views(made, policy), strict=True):
            parameter.data -= LEARNING_RATE * view


def raised(policy: Policy, by: float) -> Policy:
    head = policy.value_head
    assert isinstance(head, nn.Linear)
    with torch.no_grad():
        head.bias.add_(by)
    return policy


def without_errors(policy: Policy) -> Batch:
    """Steps of `policy` whose rewards are what its values have foretold, without a discount or an end."""
    batch = batch_made_by(policy)
    values_TB, none_TB = batch.steps.values_TB, torch.zeros_like(batch.steps.truncated_TB)
    next_values_TB = torch.cat([values_TB[1:], values_TB[:1]])
    return replace(batch, steps=Transitions(values_TB - next_values_TB, values_TB, next_values_TB, none_TB, none_TB))


@pytest.mark.parametrize("unroll_steps", UNROLLS)
def test_values_that_have_risen_alike_everywhere_make_no_advantage(unroll_steps: int) -> None:
    behaviour = policy_of(1)
    batch, settings = without_errors(behaviour), replace(SETTINGS, discount=1.0, gae_lambda=1.0)
    draft, _ = recorded_draft(raised(policy_of(1), 2.0))
    metrics = a2c_update(settings, draft, None, batch, Lengths(unroll_steps, 1), 0.0, "vtrace")
    assert metrics["train/value_loss"] < 1e-10  # squared, so advantages are below 1e-5
    assert abs(metrics["train/policy_loss"]) < 1e-5


@pytest.mark.parametrize("activity", [None, lambda: torch.rand(NUM_STEPS, NUM_ENVS) < 0.6], ids=["", "gaps"])
def test_a_policy_with_a_memory_values_the_next_step_with_what_was_remembered_then(
    activity: Callable[[], Tensor] | None,
) -> None:
    network = Network(hidden_sizes=(8,), recurrent="lstm", recurrent_size=6)
    policy = build_policy(spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Discrete(4), network, seed=1)
    states = torch.randn(NUM_STEPS, NUM_ENVS, policy.state_size)
    batch = replace(batch_made_by(policy_of(1)), states=states, active=activity() if activity else None)
    states[batch.episode_begins()] = 0.0
    targets = A2CTargets(*torch.full((3, NUM_STEPS * NUM_ENVS), torch.nan))
    a2c_objective(SETTINGS, batch, targets, Lengths(4, 2), "vtrace").value_step(policy, step=4)
    with torch.no_grad():
        _, values, _ = policy.respond({"obs": batch.observations["obs"][4], "memory": states[4]})
    is_learned = torch.ones(NUM_ENVS, dtype=torch.bool) if batch.active is None else batch.active[4]
    made = targets.values.view(NUM_STEPS, NUM_ENVS)
    torch.testing.assert_close(made[4][is_learned], values[is_learned], rtol=1e-5, atol=1e-6)
    assert made[4][~is_learned].isnan().all()
    assert made[[0, 1, 2, 3, 5, 6, 7]].isnan().all()
