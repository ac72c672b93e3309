"""PPO (https://arxiv.org/abs/1707.06347).

It starts from the current parameters and takes the ratio against the stored log-probabilities of the behaviour
policy. Under `hts` those are one version older, so the first minibatch already sees ratios other than 1 and the clip
keeps the policy near the *behaviour* policy; under `sync` this is textbook PPO.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from htsrl.algorithms.batch import Batch, flat_steps
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.objective import Targets, normalize_advantages
from htsrl.algorithms.returns import gae
from htsrl.algorithms.sequences import Chosen, Rows, Sequences
from htsrl.algorithms.statistics import Statistics, explained_variance
from htsrl.config import PPO
from htsrl.policies.distributions import Distribution
from htsrl.policies.policy import Policy
from htsrl.seeding import shuffled


@dataclass(frozen=True)
class Minibatch:
    """Rows of the batch that the loss is about."""

    actions: Tensor
    log_probs: Tensor
    values: Tensor
    advantages: Tensor
    returns: Tensor

    def rows(self, index: Rows) -> Minibatch:
        return Minibatch(
            self.actions[index],
            self.log_probs[index],
            self.values[index],
            self.advantages[index],
            self.returns[index],
        )


class PPOLoss(NamedTuple):
    """The loss and its parts, each a mean over steps, and how far the policy has moved."""

    total: Tensor
    policy: Tensor
    value: Tensor
    entropy: Tensor
    approx_kl: Tensor
    clip_fraction: Tensor


def ppo_loss(distribution: Distribution, values: Tensor, data: Minibatch, settings: PPO, clip_range: float) -> PPOLoss:
    """Clipped surrogate, (clipped) squared value error and entropy bonus."""
    log_ratio = distribution.log_prob(data.actions) - data.log_probs
    ratio = log_ratio.exp()
    clipped_ratio = ratio.clamp(1 - clip_range, 1 + clip_range)
    policy = -torch.min(data.advantages * ratio, data.advantages * clipped_ratio).mean()
    value = _value_loss(values, data, settings.value_clip_range)
    entropy = distribution.entropy().mean()
    total = policy + settings.value_coefficient * value - settings.entropy_coefficient * entropy
    with torch.no_grad():
        # Low-variance estimate of the divergence: http://joschu.net/blog/kl-approx.html
        approx_kl = (ratio - 1 - log_ratio).mean()
        clip_fraction = ((ratio - 1).abs() > clip_range).float().mean()
    return PPOLoss(total, policy, value, entropy, approx_kl, clip_fraction)


def _value_loss(values: Tensor, data: Minibatch, value_clip_range: float | None) -> Tensor:
    errors = (values - data.returns).square()
    if value_clip_range is None:
        return errors.mean()
    near = data.values + (values - data.values).clamp(-value_clip_range, value_clip_range)
    return torch.max(errors, (near - data.returns).square()).mean()


class PPOObjective:
    """The loss of some sequences of a batch."""

    num_parts = len(PPOLoss._fields)

    def __init__(self, settings: PPO, batch: Batch, targets: Targets, clip_range: float, sequence_steps: int) -> None:
        self.targets = targets
        self.sequences = Sequences(batch, sequence_steps)
        self._settings = settings
        self._clip_range = clip_range
        self._observations = {name: flat_steps(x) for name, x in batch.observations.items()}
        self._data = Minibatch(
            flat_steps(batch.actions), flat_steps(batch.log_probs), flat_steps(batch.steps.values_TB), *targets
        )

    def learned_rows(self, chosen: Chosen) -> Rows:
        return self.sequences.choose(chosen).learned

    def __call__(self, policy: Policy, chosen: Chosen) -> PPOLoss:
        piece = self.sequences.choose(chosen)
        distribution, values = policy({name: x[piece.rows] for name, x in self._observations.items()}, piece.past)
        return ppo_loss(distribution, values, self._data.rows(piece.learned), self._settings, self._clip_range)


@dataclass(frozen=True)
class PPOProgress:
    """What an update needs to know of the run around it."""

    seed: int
    update: int
    learning_rate: float
    clip_range: float
    sequence_steps: int = 1


def ppo_update(settings: PPO, draft: Draft, batch: Batch, unroll_steps: int, progress: PPOProgress) -> dict[str, float]:
    """Several epochs of shuffled minibatches, each one optimizer step, until the policy has moved far enough."""
    advantages_TB = gae(batch.steps, settings.discount, settings.gae_lambda, unroll_steps)
    advantages, returns = flat_steps(advantages_TB), flat_steps(advantages_TB + batch.steps.values_TB)
    targets = Targets(advantages.clone(), returns)
    objective = PPOObjective(settings, batch, targets, progress.clip_range, progress.sequence_steps)
    statistics = Statistics()
    for epoch in range(settings.epochs):
        order = torch.from_numpy(shuffled(progress.seed, progress.update, epoch, len(objective.sequences.starts)))
        for chosen in order.to(returns.device).tensor_split(settings.num_minibatches):
            if settings.normalize_advantages:
                normalize_advantages(objective, chosen, advantages)
            loss = PPOLoss(*draft.differentiate(objective, draft.policy, chosen))
            _record(statistics, loss)
            if settings.target_kl is not None and loss.approx_kl > 1.5 * settings.target_kl:
                return _summary(statistics, batch, returns)
            statistics.add("train/gradient_norm", draft.clip(settings.max_gradient_norm))
            draft.step(progress.learning_rate)
    return _summary(statistics, batch, returns)


def _record(statistics: Statistics, loss: PPOLoss) -> None:
    statistics.add("train/policy_gradient_loss", loss.policy)
    statistics.add("train/value_loss", loss.value)
    statistics.add("train/entropy_loss", -loss.entropy)
    statistics.add("train/approx_kl", loss.approx_kl)
    statistics.add("train/clip_fraction", loss.clip_fraction)
    statistics.add("train/loss", loss.total)


def _summary(statistics: Statistics, batch: Batch, returns: Tensor) -> dict[str, float]:
    learned, values = batch.learned_rows(), flat_steps(batch.steps.values_TB)
    statistics.add("train/explained_variance", explained_variance(values[learned], returns[learned]))
    return statistics.means()
