"""PPO (https://arxiv.org/abs/1707.06347).

An update starts from the current parameters. Under `sync` those made the data, and this is textbook PPO. Where the data
are older the objective is decoupled (https://arxiv.org/abs/2110.00641) from the second epoch on: ratios and values are
then clipped around what the first epoch found when it came to a step, and the step counts by how much more likely its
action had become by then since the *behaviour* policy took it. The first epoch is clipped around the behaviour policy,
as far as two updates may go, for under `hts` another one has been there before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from htsrl.algorithms.batch import Batch, flat_steps
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.objective import BatchView, Seen, Targets
from htsrl.algorithms.returns import gae
from htsrl.algorithms.statistics import Statistics, explained_variance
from htsrl.config import PPO
from htsrl.kill_points import reach
from htsrl.policies.distributions import Distribution
from htsrl.seeding import shuffled

FIRST_WIDTH = 2.0
"""How much wider the clips of a first epoch are whose data do not know of the update before."""
MOST_WEIGHT = 2.0
"""Importance weights have no bound of their own."""
MOST_LOG_RATIO = 50.0
"""Above, a ratio soon is infinite, and times a weight of 0 not a number."""


@dataclass(frozen=True)
class Minibatch:
    """Rows of the batch that the loss is about."""

    actions: Tensor
    behaviour_log_probs: Tensor
    log_probs: Tensor
    """Of the policy that the clip is around."""
    values: Tensor
    """Of the same."""
    advantages: Tensor
    returns: Tensor

    @property
    def weights(self) -> Tensor:
        """How much more likely that policy makes the actions than the one that took them; 1 where they are the same."""
        return (self.log_probs - self.behaviour_log_probs).exp().clamp(max=MOST_WEIGHT)


class Clips(NamedTuple):
    """How far from 1 a ratio counts, and how far values may move."""

    ratio: float
    values: float | None

    def widened(self, by: float) -> Clips:
        return Clips(self.ratio * by, None if self.values is None else self.values * by)


class PPOLoss(NamedTuple):
    """The loss and its parts, each a mean over steps, and how far the policy has moved."""

    total: Tensor
    policy: Tensor
    value: Tensor
    entropy: Tensor
    approx_kl: Tensor
    clip_fraction: Tensor


def ppo_loss(distribution: Distribution, values: Tensor, data: Minibatch, settings: PPO, clips: Clips) -> PPOLoss:
    """Clipped surrogate, (clipped) squared value error and entropy bonus."""
    log_ratio = distribution.log_prob(data.actions) - data.log_probs
    ratio = log_ratio.clamp(max=MOST_LOG_RATIO).exp()
    clipped_ratio = ratio.clamp(1 - clips.ratio, 1 + clips.ratio)
    policy = -(data.weights * torch.min(data.advantages * ratio, data.advantages * clipped_ratio)).mean()
    value = _value_loss(values, data, clips.values)
    entropy = distribution.entropy().mean()
    total = policy + settings.value_coefficient * value - settings.entropy_coefficient * entropy
    with torch.no_grad():
        # Low-variance estimate of the divergence: http://joschu.net/blog/kl-approx.html
        approx_kl = (ratio - 1 - log_ratio).mean()
        clip_fraction = ((ratio - 1).abs() > clips.ratio).float().mean()
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
    is_decoupled: bool
    """Whether data may be of an older version."""
    sequence_steps: int = 1


class PPOObjective(BatchView):
    """The loss of some sequences of a batch."""

    num_parts = len(PPOLoss._fields)

    def __init__(self, settings: PPO, batch: Batch, targets: Targets, progress: PPOProgress) -> None:
        super().__init__(batch, targets, progress.sequence_steps)
        self._settings = settings
        self._is_decoupled = progress.is_decoupled
        self._clips = Clips(progress.clip_range, settings.value_clip_range)
        self._behaviour_log_probs = flat_steps(batch.log_probs)
        self._behaviour_values = flat_steps(batch.steps.values_TB)

    @property
    def is_first_look(self) -> bool:
        """Of an update whose later epochs are clipped around what is found now."""
        return self._is_decoupled and self.epoch == 0

    def loss(self, seen: Seen) -> PPOLoss:
        data = self._minibatch(seen)
        if not self.is_first_look:
            return ppo_loss(seen.distribution, seen.values, data, self._settings, self._clips)
        self._write_down(seen)
        return ppo_loss(seen.distribution, seen.values, data, self._settings, self._clips.widened(FIRST_WIDTH))

    def _minibatch(self, seen: Seen) -> Minibatch:
        rows, targets = seen.rows, self.targets
        is_around_behaviour = self.is_first_look or not self._is_decoupled
        return Minibatch(
            actions=seen.actions,
            behaviour_log_probs=self._behaviour_log_probs[rows],
            log_probs=(self._behaviour_log_probs if is_around_behaviour else targets.log_probs)[rows],
            values=(self._behaviour_values if is_around_behaviour else targets.values)[rows],
            advantages=targets.advantages[rows],
            returns=targets.returns[rows],
        )

    def _write_down(self, seen: Seen) -> None:
        """Where later epochs look, and nobody in this one."""
        self.targets.log_probs[seen.rows] = seen.distribution.log_prob(seen.actions).detach()
        reach("inside a gradient")
        self.targets.values[seen.rows] = seen.values.detach()


def ppo_update(settings: PPO, draft: Draft, batch: Batch, unroll_steps: int, progress: PPOProgress) -> dict[str, float]:
    """Several epochs of shuffled minibatches, each one optimizer step, until the policy has moved far enough."""
    targets = draft.targets(batch.log_probs.numel())
    objective = PPOObjective(settings, batch, targets, progress)
    advantages = _set_targets(settings, batch, targets, unroll_steps)
    statistics = Statistics()
    for epoch in range(settings.epochs):
        objective.epoch = epoch
        for chosen in _minibatches(settings, objective, progress):
            if settings.normalize_advantages:
                objective.normalize_advantages(chosen, advantages)
            loss = PPOLoss(*draft.differentiate(objective, draft.policy, chosen))
            _record(statistics, loss)
            if not objective.is_first_look and _is_far(loss, settings):
                return _summary(statistics, batch, targets)
            statistics.add("train/gradient_norm", draft.clip(settings.max_gradient_norm))
            draft.step(progress.learning_rate)
    return _summary(statistics, batch, targets)


def _minibatches(settings: PPO, objective: PPOObjective, progress: PPOProgress) -> Sequence[Tensor]:
    starts = objective.sequences.starts
    order = torch.from_numpy(shuffled(progress.seed, progress.update, objective.epoch, len(starts)))
    return order.to(starts.device).tensor_split(settings.num_minibatches)


def _set_targets(settings: PPO, batch: Batch, targets: Targets, unroll_steps: int) -> Tensor:
    """Say what gradients aim at; returns the advantages, which may be normalised."""
    values_TB = batch.steps.values_TB
    advantages_TB = gae(batch.steps, settings.discount, settings.gae_lambda, unroll_steps)
    targets.advantages.copy_(flat_steps(advantages_TB))
    targets.returns.copy_(flat_steps(advantages_TB + values_TB))
    return flat_steps(advantages_TB)


def _is_far(loss: PPOLoss, settings: PPO) -> bool:
    return settings.target_kl is not None and bool(loss.approx_kl > 1.5 * settings.target_kl)


def _record(statistics: Statistics, loss: PPOLoss) -> None:
    statistics.add("train/policy_gradient_loss", loss.policy)
    statistics.add("train/value_loss", loss.value)
    statistics.add("train/entropy_loss", -loss.entropy)
    statistics.add("train/approx_kl", loss.approx_kl)
    statistics.add("train/clip_fraction", loss.clip_fraction)
    statistics.add("train/loss", loss.total)


def _summary(statistics: Statistics, batch: Batch, targets: Targets) -> dict[str, float]:
    learned, values = batch.learned_rows(), flat_steps(batch.steps.values_TB)
    statistics.add("train/explained_variance", explained_variance(values[learned], targets.returns[learned]))
    return statistics.means()
