"""A2C (https://arxiv.org/abs/1602.01783), with the one-step delayed gradient of HTS-RL
(https://arxiv.org/abs/2012.09849).

    theta[j+1] = theta[j] + eta * grad J(theta[j-1]; data made by theta[j-1])

The gradient is taken where the data were made, so it is an on-policy gradient without any correction, and applied to
the current parameters through the optimizer. Under `sync`, with one unroll per interval, both are the same version and
this is textbook A2C. Other corrections of the lag take the gradient at the current parameters: with V-trace under
`async` this is IMPALA, without any it is GA3C.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from htsrl.algorithms.a2c.settings import A2C
from htsrl.algorithms.algorithm import Metrics, RunFacts, Update
from htsrl.algorithms.batch import Batch, flat_steps
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.lag_correction import Correction, Current, correction_of, importance, vtrace_of
from htsrl.algorithms.objective import BatchObjective, PolicyOutputs
from htsrl.algorithms.returns import gae
from htsrl.algorithms.sequences import Sequences, count
from htsrl.algorithms.statistics import Statistics, explained_variance, normalized
from htsrl.errors import ConfigError
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


class A2CTargets(NamedTuple):
    """What gradients aim at, an entry for each of the flattened steps."""

    advantages: Tensor
    returns: Tensor
    values: Tensor
    """Of V-trace: what is known best, of the version that acted or a newer one."""


class A2CObjective(BatchObjective[A2CTargets]):
    """The loss of some sequences of a batch."""

    num_parts = len(A2CLoss._fields)

    def __init__(self, settings: A2C, run: RunFacts, batch: Batch, targets: A2CTargets, correction: Correction) -> None:
        super().__init__(batch, targets, run.sequence_steps)
        self._settings = settings
        self._batch = batch
        self._unroll = run.unroll_steps
        self._correction = correction

    def loss(self, seen: PolicyOutputs) -> A2CLoss:
        rows, actions, distribution, values = seen
        advantages, returns = self.targets.advantages[rows], self.targets.returns[rows]
        if self._correction in ("vtrace", "importance"):
            now = Current(rows, distribution.log_prob(actions), values)
            if self._correction == "vtrace":
                advantages, returns = vtrace_of(self._batch, now, self.targets.values, self._settings, self._unroll)
                if self._settings.normalize_advantages:
                    advantages = normalized(advantages)
            advantages = importance(self._batch, now) * advantages
        return a2c_loss(distribution, values, actions, advantages, returns, self._settings)

    @torch.no_grad()
    def value_step(self, policy: Policy, step: int) -> None:
        """Write down what the policy takes a step of the batch to be worth: the unroll before it bootstraps there.

        The value that was stored when acting would bear all that values have risen or fallen by since.
        """
        steps = Sequences(self._batch, length=1)
        if count(chosen := steps.within(step, 1)):
            seen = self.see(policy, steps.choose(chosen))
            self.targets.values[seen.rows] = seen.values


class A2CAlgorithm:
    """One optimizer step per unroll, every gradient at the behaviour parameters or, told so, at the current ones."""

    Settings = A2C
    Targets = A2CTargets

    def __init__(self, settings: A2C, run: RunFacts) -> None:
        self._settings = settings
        self._run = run
        self.correction = correction_of(settings, run.mixes_versions)

    def check(self) -> None:
        shards = self._run.gradient_shards
        if self.correction == "vtrace" and shards > 1:
            raise ConfigError(
                f"V-trace looks at whole rollouts, and gradient_shards={shards} would cut them; use --gradient-shards 1"
            )
        if self.differentiates_at_behaviour and self._run.mixes_versions:
            raise ConfigError(
                "lag_correction=delayed_gradient needs data of one known version, and under schedule=async each step "
                "may have another; use vtrace, importance or none"
            )

    @property
    def differentiates_at_behaviour(self) -> bool:
        return self.correction == "delayed_gradient"

    def objective(self, update: Update, batch: Batch, targets: A2CTargets) -> A2CObjective:
        return A2CObjective(self._settings, self._run, batch, targets, self.correction)

    def improve(self, update: Update, draft: Draft, batch: Batch) -> Metrics:
        settings, unroll = self._settings, self._run.unroll_steps
        differentiated = update.behaviour if self.differentiates_at_behaviour else draft.policy
        assert differentiated is not None, "the delayed gradient needs the one version that made the data"
        has_activations = any(name.startswith(FIELD_PREFIX) for name in batch.observations)
        assert self.differentiates_at_behaviour or not has_activations, "activations are those of the acting version"
        advantages_TB = gae(batch.steps, settings.discount, settings.gae_lambda, unroll)
        advantages, returns = flat_steps(advantages_TB), flat_steps(advantages_TB + batch.steps.values_TB)
        values = flat_steps(batch.steps.values_TB)
        targets = draft.set_targets(A2CTargets(advantages, returns, values))
        objective = self.objective(update, batch, targets)
        learning_rate = settings.learning_rate
        if settings.anneal_learning_rate:
            learning_rate *= self._run.remaining(update.number)
        statistics = Statistics()
        for first in range(0, len(advantages_TB), unroll):
            chosen = objective.sequences.within(first, unroll)
            if settings.normalize_advantages:
                objective.normalize_advantages(chosen, advantages)
            if self.correction == "vtrace":
                objective.value_step(differentiated, first + unroll)
            loss = A2CLoss(*draft.differentiate(objective, differentiated, chosen))
            gradient_norm = draft.clip(settings.max_gradient_norm)
            draft.step(learning_rate)
            _record(statistics, loss, gradient_norm)
        learned = batch.learned_rows()
        statistics.add("train/explained_variance", explained_variance(values[learned], returns[learned]))
        return {"train/learning_rate": learning_rate, **statistics.means()}


def _record(statistics: Statistics, loss: A2CLoss, gradient_norm: Tensor) -> None:
    statistics.add("train/policy_loss", loss.policy)
    statistics.add("train/value_loss", loss.value)
    statistics.add("train/entropy_loss", -loss.entropy)
    statistics.add("train/gradient_norm", gradient_norm)
