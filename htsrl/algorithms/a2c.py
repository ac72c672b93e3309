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
from typing import NamedTuple

from torch import Tensor

from htsrl.algorithms.batch import Batch, flat_steps
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.lag_correction import Correction, Current, importance, vtrace_of
from htsrl.algorithms.objective import BatchView, Seen, Targets
from htsrl.algorithms.returns import gae
from htsrl.algorithms.statistics import Statistics, explained_variance, normalized
from htsrl.config import A2C
from htsrl.policies.activations import FIELD_PREFIX
from htsrl.policies.distributions import Distribution
from htsrl.policies.policy import Policy


class A2CLoss(NamedTuple):
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


class A2CObjective(BatchView):
    """The loss of some sequences of a batch."""

    num_parts = len(A2CLoss._fields)

    def __init__(self, settings: A2C, batch: Batch, targets: Targets, lengths: Lengths, correction: Correction) -> None:
        super().__init__(batch, targets, lengths.sequence)
        self._settings = settings
        self._batch = batch
        self._unroll = lengths.unroll
        self._correction = correction

    def loss(self, seen: Seen) -> A2CLoss:
        rows, actions, distribution, values = seen
        advantages, returns = self.targets.advantages[rows], self.targets.returns[rows]
        if self._correction in ("vtrace", "importance"):
            now = Current(rows, distribution.log_prob(actions), values)
            if self._correction == "vtrace":
                advantages, returns = vtrace_of(self._batch, now, self._settings, self._unroll)
                if self._settings.normalize_advantages:
                    advantages = normalized(advantages)
            advantages = importance(self._batch, now) * advantages
        return a2c_loss(distribution, values, actions, advantages, returns, self._settings)


def a2c_update(
    settings: A2C,
    draft: Draft,
    behaviour: Policy | None,
    batch: Batch,
    lengths: Lengths,
    learning_rate: float,
    correction: Correction = "delayed_gradient",
) -> dict[str, float]:
    """One optimizer step per unroll, every gradient at the behaviour parameters or, told so, at the current ones."""
    differentiated = behaviour if correction == "delayed_gradient" else draft.policy
    assert differentiated is not None, "the delayed gradient needs the one version that made the data"
    has_activations = any(name.startswith(FIELD_PREFIX) for name in batch.observations)
    assert correction == "delayed_gradient" or not has_activations, "activations are those of the version that acted"
    advantages_TB = gae(batch.steps, settings.discount, settings.gae_lambda, lengths.unroll)
    advantages, returns = flat_steps(advantages_TB), flat_steps(advantages_TB + batch.steps.values_TB)
    targets = draft.targets(len(returns))
    targets.advantages.copy_(advantages)
    targets.returns.copy_(returns)
    objective = A2CObjective(settings, batch, targets, lengths, correction)
    statistics = Statistics()
    for first in range(0, len(advantages_TB), lengths.unroll):
        chosen = objective.sequences.within(first, lengths.unroll)
        if settings.normalize_advantages:
            objective.normalize_advantages(chosen, advantages)
        loss = A2CLoss(*draft.differentiate(objective, differentiated, chosen))
        gradient_norm = draft.clip(settings.max_gradient_norm)
        draft.step(learning_rate)
        statistics.add("train/policy_loss", loss.policy)
        statistics.add("train/value_loss", loss.value)
        statistics.add("train/entropy_loss", -loss.entropy)
        statistics.add("train/gradient_norm", gradient_norm)
    learned = batch.learned_rows()
    values = flat_steps(batch.steps.values_TB)
    statistics.add("train/explained_variance", explained_variance(values[learned], returns[learned]))
    return statistics.means()
