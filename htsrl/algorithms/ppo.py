"""PPO (https://arxiv.org/abs/1707.06347).

It starts from the current parameters and takes the ratio against the stored log-probabilities of the behaviour
policy. Under `hts` those are one version older, so the first minibatch already sees ratios other than 1 and the clip
keeps the policy near the *behaviour* policy; under `sync` this is textbook PPO.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from htsrl.algorithms.batch import Batch, flat_steps
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.returns import gae
from htsrl.algorithms.sequences import Rows, Sequences
from htsrl.algorithms.statistics import Statistics, explained_variance, normalized
from htsrl.config import PPO
from htsrl.policies.distributions import Distribution
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


@dataclass(frozen=True)
class PPOLoss:
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
    advantages = normalized(data.advantages) if settings.normalize_advantages else data.advantages
    clipped_ratio = ratio.clamp(1 - clip_range, 1 + clip_range)
    policy = -torch.min(advantages * ratio, advantages * clipped_ratio).mean()
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
    data, observations = _with_advantages(batch, settings, unroll_steps), _flat_observations(batch)
    sequences, statistics = Sequences(batch, progress.sequence_steps), Statistics()
    for epoch in range(settings.epochs):
        order = torch.from_numpy(shuffled(progress.seed, progress.update, epoch, len(sequences.starts)))
        for index in order.to(data.advantages.device).tensor_split(settings.num_minibatches):
            piece = sequences.piece(sequences.starts[index])
            distribution, values = draft.policy({name: x[piece.rows] for name, x in observations.items()}, piece.past)
            loss = ppo_loss(distribution, values, data.rows(piece.learned), settings, progress.clip_range)
            _record(statistics, loss)
            if settings.target_kl is not None and loss.approx_kl > 1.5 * settings.target_kl:
                return _summary(statistics, data, batch)
            draft.differentiate(loss.total)
            statistics.add("train/gradient_norm", draft.clip(settings.max_gradient_norm))
            draft.step(progress.learning_rate)
    return _summary(statistics, data, batch)


def _with_advantages(batch: Batch, settings: PPO, unroll_steps: int) -> Minibatch:
    advantages_TB = gae(batch.steps, settings.discount, settings.gae_lambda, unroll_steps)
    returns_TB = advantages_TB + batch.steps.values_TB
    return Minibatch(
        flat_steps(batch.actions),
        flat_steps(batch.log_probs),
        flat_steps(batch.steps.values_TB),
        flat_steps(advantages_TB),
        flat_steps(returns_TB),
    )


def _flat_observations(batch: Batch) -> dict[str, Tensor]:
    return {name: flat_steps(x) for name, x in batch.observations.items()}


def _record(statistics: Statistics, loss: PPOLoss) -> None:
    statistics.add("train/policy_gradient_loss", loss.policy)
    statistics.add("train/value_loss", loss.value)
    statistics.add("train/entropy_loss", -loss.entropy)
    statistics.add("train/approx_kl", loss.approx_kl)
    statistics.add("train/clip_fraction", loss.clip_fraction)
    statistics.add("train/loss", loss.total)


def _summary(statistics: Statistics, data: Minibatch, batch: Batch) -> dict[str, float]:
    learned = data.rows(batch.learned_rows())
    statistics.add("train/explained_variance", explained_variance(learned.values, learned.returns))
    return statistics.means()
