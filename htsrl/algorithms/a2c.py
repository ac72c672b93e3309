"""A2C (https://arxiv.org/abs/1602.01783), with the one-step delayed gradient of HTS-RL
(https://arxiv.org/abs/2012.09849).

    theta[j+1] = theta[j] + eta * grad J(theta[j-1]; data made by theta[j-1])

The gradient is taken where the data were made, so it is an on-policy gradient without any correction, and applied to
the current parameters through the optimizer. Under `sync`, with one unroll per interval, both are the same version and
this is textbook A2C. Other corrections of the lag take the gradient at the current parameters: with V-trace under
`async` this is IMPALA, without any it is GA3C.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from htsrl.algorithms.batch import Batch, flat_steps
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.lag_correction import Current, importance, vtrace_of
from htsrl.algorithms.returns import gae
from htsrl.algorithms.sequences import Sequences
from htsrl.algorithms.statistics import Statistics, explained_variance, normalized
from htsrl.config import A2C
from htsrl.policies.distributions import Distribution
from htsrl.policies.policy import Policy


@dataclass(frozen=True)
class A2CLoss:
    """The loss and its parts, each a mean over steps."""

    total: Tensor
    policy: Tensor
    value: Tensor
    entropy: Tensor


def a2c_loss(
    distribution: Distribution, values: Tensor, actions: Tensor, advantages: Tensor, returns: Tensor, settings: A2C
) -> A2CLoss:
    """Policy gradient, squared value error and entropy bonus."""
    policy = -(advantages * distribution.log_prob(actions)).mean()
    value = (returns - values).square().mean()
    entropy = distribution.entropy().mean()
    total = policy + settings.value_coefficient * value - settings.entropy_coefficient * entropy
    return A2CLoss(total, policy, value, entropy)


@dataclass(frozen=True)
class Lengths:
    """How many steps belong together."""

    unroll: int
    """For one gradient."""
    sequence: int
    """For a policy's memory."""


def a2c_update(
    settings: A2C, draft: Draft, behaviour: Policy | None, batch: Batch, lengths: Lengths, learning_rate: float
) -> dict[str, float]:
    """One optimizer step per unroll, every gradient at the behaviour parameters or, told so, at the current ones."""
    correction = _lag_correction(settings, behaviour)
    differentiated = behaviour if correction == "delayed_gradient" else draft.policy
    assert differentiated is not None, "the delayed gradient needs the one version that made the data"
    advantages_TB = gae(batch.steps, settings.discount, settings.gae_lambda, lengths.unroll)
    returns_TB = advantages_TB + batch.steps.values_TB
    sequences, statistics = Sequences(batch, lengths.sequence), Statistics()
    for first in range(0, len(advantages_TB), lengths.unroll):
        piece = sequences.steps(first, lengths.unroll)
        advantages, returns = flat_steps(advantages_TB)[piece.learned], flat_steps(returns_TB)[piece.learned]
        seen = {name: flat_steps(x)[piece.rows] for name, x in batch.observations.items()}
        distribution, values = differentiated(seen, piece.past)
        actions = flat_steps(batch.actions)[piece.learned]
        log_probs, behaviour_log_probs = distribution.log_prob(actions), flat_steps(batch.log_probs)[piece.learned]
        if correction == "vtrace":
            advantages, returns = vtrace_of(batch, Current(piece.learned, log_probs, values), settings, lengths.unroll)
        if settings.normalize_advantages:
            advantages = normalized(advantages)
        if correction in ("vtrace", "importance"):
            advantages = importance(log_probs, behaviour_log_probs) * advantages
        loss = a2c_loss(distribution, values, actions, advantages, returns, settings)
        draft.differentiate(loss.total)
        gradient_norm = draft.clip(settings.max_gradient_norm)
        draft.step(learning_rate)
        statistics.add("train/policy_loss", loss.policy)
        statistics.add("train/value_loss", loss.value)
        statistics.add("train/entropy_loss", -loss.entropy)
        statistics.add("train/gradient_norm", gradient_norm)
    with torch.no_grad():
        learned = batch.learned_rows()
        values, returns = flat_steps(batch.steps.values_TB)[learned], flat_steps(returns_TB)[learned]
        statistics.add("train/explained_variance", explained_variance(values, returns))
    return statistics.means()


def _lag_correction(settings: A2C, behaviour: Policy | None) -> str:
    if settings.lag_correction == "auto":
        return "vtrace" if behaviour is None else "delayed_gradient"
    return settings.lag_correction
