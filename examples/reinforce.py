"""REINFORCE with a baseline (Williams 1992), as an algorithm of one's own.

    htsrl train CartPole-v1 --algo examples.reinforce:Reinforce --learning-rate 3e-3

Returns reach to the end of the episode, or of the interval and from there take the value. Gradients are taken at the
version that acted, so under `hts` they are on-policy too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from htsrl.extending import (
    Batch,
    BatchObjective,
    ConfigError,
    Draft,
    PolicyOutputs,
    RunFacts,
    Update,
    flat_steps,
    n_step_returns,
)


class ReinforceTargets(NamedTuple):
    returns: Tensor
    advantages: Tensor


class ReinforceObjective(BatchObjective[ReinforceTargets]):
    num_parts = 3

    def loss(self, seen: PolicyOutputs) -> tuple[Tensor, Tensor, Tensor]:
        returns, advantages = (target[seen.rows] for target in self.targets)
        policy = -(advantages * seen.distribution.log_prob(seen.actions)).mean()
        baseline = (returns - seen.values).square().mean()
        return policy + 0.5 * baseline, policy, baseline


class Reinforce:
    @dataclass(frozen=True)
    class Settings:
        """REINFORCE with the value as its baseline."""

        default_sync_interval: ClassVar[int] = 64
        learning_rate: float = 1e-3
        """Step size of Adam."""
        discount: float = 0.99
        """Gamma: what a reward one step later is worth."""
        max_gradient_norm: float = 0.5
        """Gradients longer than this are scaled down to it."""

    Targets = ReinforceTargets
    differentiates_at_behaviour = True

    def __init__(self, settings: Settings, run: RunFacts) -> None:
        self._settings, self._run = settings, run

    def check(self) -> None:
        if self._run.mixes_versions:
            raise ConfigError("REINFORCE needs batches of one version; use --schedule hts or sync")

    def objective(self, update: Update, batch: Batch, targets: ReinforceTargets) -> ReinforceObjective:
        return ReinforceObjective(batch, targets, self._run.sequence_steps)

    def improve(self, update: Update, draft: Draft, batch: Batch) -> dict[str, float]:
        assert update.behaviour is not None
        returns = flat_steps(n_step_returns(batch.steps, self._settings.discount, self._run.unroll_steps))
        values = flat_steps(batch.steps.values_TB)
        targets = draft.set_targets(ReinforceTargets(returns, advantages=returns - values))
        objective = self.objective(update, batch, targets)
        _, policy, baseline = draft.differentiate(objective, update.behaviour, objective.all_sequences)
        draft.clip(self._settings.max_gradient_norm)
        draft.step(self._settings.learning_rate)
        return {"train/policy_loss": policy.item(), "train/value_loss": baseline.item()}
