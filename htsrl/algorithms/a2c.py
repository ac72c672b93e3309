"""A2C (https://arxiv.org/abs/1602.01783), with the one-step delayed gradient of HTS-RL
(https://arxiv.org/abs/2012.09849).

    theta[j+1] = theta[j] + eta * grad J(theta[j-1]; data made by theta[j-1])

The gradient is taken where the data were made, so it is an on-policy gradient without any correction, and applied to
the current parameters through the optimizer. Under `sync`, with one unroll per interval, both are the same version and
this is textbook A2C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from htsrl.algorithms.batch import Batch, flat_steps
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.objective import Targets, normalize_advantages
from htsrl.algorithms.returns import gae
from htsrl.algorithms.sequences import Chosen, Rows, Sequences
from htsrl.algorithms.statistics import Statistics, explained_variance
from htsrl.config import A2C
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


class A2CObjective:
    """The loss of some sequences of a batch."""

    num_parts = len(A2CLoss._fields)

    def __init__(self, settings: A2C, batch: Batch, targets: Targets, sequence_steps: int) -> None:
        self.targets = targets
        self.sequences = Sequences(batch, sequence_steps)
        self._settings = settings
        self._observations = {name: flat_steps(x) for name, x in batch.observations.items()}
        self._actions = flat_steps(batch.actions)

    def learned_rows(self, chosen: Chosen) -> Rows:
        return self.sequences.choose(chosen).learned

    def __call__(self, policy: Policy, chosen: Chosen) -> A2CLoss:
        piece = self.sequences.choose(chosen)
        distribution, values = policy({name: x[piece.rows] for name, x in self._observations.items()}, piece.past)
        actions, (advantages, returns) = self._actions[piece.learned], (x[piece.learned] for x in self.targets)
        return a2c_loss(distribution, values, actions, advantages, returns, self._settings)


@dataclass(frozen=True)
class Lengths:
    """How many steps belong together."""

    unroll: int
    """For one gradient."""
    sequence: int
    """For a policy's memory."""


def a2c_update(
    settings: A2C, draft: Draft, behaviour: Policy, batch: Batch, lengths: Lengths, learning_rate: float
) -> dict[str, float]:
    """One optimizer step per unroll, every gradient at the behaviour parameters."""
    advantages_TB = gae(batch.steps, settings.discount, settings.gae_lambda, lengths.unroll)
    advantages, returns = flat_steps(advantages_TB), flat_steps(advantages_TB + batch.steps.values_TB)
    objective = A2CObjective(settings, batch, Targets(advantages.clone(), returns), lengths.sequence)
    statistics = Statistics()
    for first in range(0, len(advantages_TB), lengths.unroll):
        chosen = objective.sequences.within(first, lengths.unroll)
        if settings.normalize_advantages:
            normalize_advantages(objective, chosen, advantages)
        loss = A2CLoss(*draft.differentiate(objective, behaviour, chosen))
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
