"""PPO (https://arxiv.org/abs/1707.06347).

An update starts from the current parameters. Under `sync` those made the data, and this is textbook PPO. Where the data
are older, ratios and values may be clipped around another policy than the *behaviour* policy, and a step then counts by
how much more likely that policy makes its action (https://arxiv.org/abs/2110.00641):

    decoupled    around the policy that the update starts from, which looks at all steps first
    recentered   in the first epoch around the behaviour policy, as far as two updates may go, for under `hts` another
                 one has been there before; later around what the first epoch found when it came to a step
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from htsrl.algorithms.algorithm import Metrics, RunFacts, Update
from htsrl.algorithms.batch import Batch, flat_steps
from htsrl.algorithms.delayed_update import delayed
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.lag_correction import PPOCorrection, check_ppo_correction, ppo_correction_of
from htsrl.algorithms.objective import BatchObjective, PolicyOutputs
from htsrl.algorithms.ppo.settings import PPO
from htsrl.algorithms.returns import gae
from htsrl.algorithms.sequences import cut
from htsrl.algorithms.statistics import Statistics, explained_variance
from htsrl.policies.distributions import Distribution
from htsrl.policies.policy import Policy
from htsrl.processes.kill_points import kill_point
from htsrl.seeding import shuffled

BATCH_EPSILON = 1e-5
"""Added to the deviation of a whole batch's advantages, as HTS-RL's released code does."""
MAX_LOG_RATIO = 50.0
"""Above, a ratio soon is infinite, and times a weight of 0 not a number."""


@dataclass(frozen=True)
class Minibatch:
    """Rows of the batch that the loss is about."""

    actions: Tensor
    behaviour_log_probs: Tensor
    log_probs: Tensor
    """Log-probabilities under the clip's centre policy."""
    values: Tensor
    """Values of the clip's centre policy."""
    advantages: Tensor
    returns: Tensor

    def weights(self, maximum: float) -> Tensor:
        """How much more likely that policy makes the actions than the one that took them; 1 where they are the same.

        Truncated, for its variance has no bound.
        """
        return (self.log_probs - self.behaviour_log_probs).exp().clamp(max=maximum)


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
    ratio = log_ratio.clamp(max=MAX_LOG_RATIO).exp()
    clipped_ratio = ratio.clamp(1 - clips.ratio, 1 + clips.ratio)
    weights = data.weights(settings.max_importance_weight)
    policy = -(weights * torch.min(data.advantages * ratio, data.advantages * clipped_ratio)).mean()
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


class PPOTargets(NamedTuple):
    """What gradients aim at, an entry for each of the flattened steps."""

    advantages: Tensor
    returns: Tensor
    log_probs: Tensor
    """Log-probabilities under the clip's centre policy, where that is not the one that acted."""
    values: Tensor
    """Values of the clip's centre policy, where that is not the one that acted."""


class PPOObjective(BatchObjective[PPOTargets]):
    """The loss of some sequences of a batch."""

    num_parts = len(PPOLoss._fields)

    def __init__(
        self,
        settings: PPO,
        batch: Batch,
        targets: PPOTargets,
        correction: PPOCorrection = "none",
        clip_range: float | None = None,
        sequence_steps: int = 1,
    ) -> None:
        """`clip_range` is for those who anneal it."""
        super().__init__(batch, targets, sequence_steps)
        self._settings = settings
        self._correction = correction
        self._clips = Clips(settings.clip_range if clip_range is None else clip_range, settings.value_clip_range)
        self._behaviour_log_probs = flat_steps(batch.log_probs)
        self._behaviour_values = flat_steps(batch.steps.values_TB)

    @property
    def is_first_look(self) -> bool:
        """Of an update whose later epochs are clipped around what is found now."""
        return self._correction == "recentered" and self.epoch == 0

    def loss(self, seen: PolicyOutputs) -> PPOLoss:
        data = self._minibatch(seen)
        if not self.is_first_look:
            return ppo_loss(seen.distribution, seen.values, data, self._settings, self._clips)
        self._write_down(seen)
        clips = self._clips.widened(self._settings.first_epoch_clip_factor)
        return ppo_loss(seen.distribution, seen.values, data, self._settings, clips)

    @torch.no_grad()
    def assess(self, policy: Policy, num_pieces: int) -> None:
        """Write down what the policy makes of all steps, before any gradient; so many pieces need less memory."""
        self.targets.log_probs.copy_(self._behaviour_log_probs)  # of steps that nobody learns from
        self.targets.values.copy_(self._behaviour_values)
        for chosen in cut(self.all_sequences, num_pieces):
            self._write_down(self.see(policy, self.sequences.choose(chosen)))

    def normalize_all_advantages(self, advantages: Tensor) -> None:
        """Once for all epochs."""
        self.normalize_advantages(self.all_sequences, advantages, BATCH_EPSILON)

    def _minibatch(self, seen: PolicyOutputs) -> Minibatch:
        rows, targets = seen.rows, self.targets
        is_around_behaviour = self.is_first_look or self._correction not in ("recentered", "decoupled")
        behaviour_log_probs = self._behaviour_log_probs[rows]
        return Minibatch(
            actions=seen.actions,
            behaviour_log_probs=behaviour_log_probs,
            log_probs=behaviour_log_probs if is_around_behaviour else targets.log_probs[rows],
            values=(self._behaviour_values if is_around_behaviour else targets.values)[rows],
            advantages=targets.advantages[rows],
            returns=targets.returns[rows],
        )

    def _write_down(self, seen: PolicyOutputs) -> None:
        """Where later epochs look, and nobody meanwhile."""
        self.targets.log_probs[seen.rows] = seen.distribution.log_prob(seen.actions).detach()
        kill_point("inside a gradient")
        self.targets.values[seen.rows] = seen.values.detach()


class PPOAlgorithm:
    """Several epochs of shuffled minibatches, each one optimizer step, until the policy has moved far enough."""

    Settings = PPO
    Targets = PPOTargets
    differentiates_at_behaviour = False

    def __init__(self, settings: PPO, run: RunFacts) -> None:
        self._settings = settings
        self._run = run
        self.correction = ppo_correction_of(settings, run.overlaps_learning)

    def check(self) -> None:
        check_ppo_correction(self._settings, self.correction, self._run.mixes_versions)

    def objective(self, update: Update, batch: Batch, targets: PPOTargets) -> PPOObjective:
        clip_range, length = self._clip_range(update), self._run.sequence_steps
        return PPOObjective(self._settings, batch, targets, self.correction, clip_range, length)

    def improve(self, update: Update, draft: Draft, batch: Batch) -> Metrics:
        metrics = {"train/learning_rate": self._learning_rate(update), "train/clip_range": self._clip_range(update)}
        if self.correction != "delayed_update":
            return metrics | self._optimise(update, draft, batch)
        assert update.behaviour is not None, "a delayed update needs the one version that made the data"
        with delayed(draft.policy, update.behaviour):
            return metrics | self._optimise(update, draft, batch)

    def _optimise(self, update: Update, draft: Draft, batch: Batch) -> Metrics:
        settings, learning_rate = self._settings, self._learning_rate(update)
        targets = draft.targets(PPOTargets, batch.log_probs.numel())
        objective = self.objective(update, batch, targets)
        if self.correction == "decoupled":
            objective.assess(draft.policy, self._num_minibatches)
            batch = batch.valued_by(targets.values)
        advantages = self._set_targets(batch, targets)
        if settings.normalize_advantages and settings.advantage_normalization == "batch":
            objective.normalize_all_advantages(advantages)
        statistics = Statistics()
        for epoch in range(settings.epochs):
            objective.epoch = epoch
            for chosen in self._minibatches(update, objective):
                if settings.normalize_advantages and settings.advantage_normalization == "minibatch":
                    objective.normalize_advantages(chosen, advantages)
                loss = PPOLoss(*draft.differentiate(objective, draft.policy, chosen))
                _record(statistics, loss)
                if not objective.is_first_look and _is_far(loss, settings):
                    return _summary(statistics, batch, targets)
                statistics.add("train/gradient_norm", draft.clip(settings.max_gradient_norm))
                draft.step(learning_rate)
        return _summary(statistics, batch, targets)

    def _set_targets(self, batch: Batch, targets: PPOTargets) -> Tensor:
        """Say what gradients aim at; returns the advantages, which may be normalised."""
        settings, values_TB = self._settings, batch.steps.values_TB
        advantages_TB = gae(batch.steps, settings.discount, settings.gae_lambda, self._run.unroll_steps)
        targets.advantages.copy_(flat_steps(advantages_TB))
        targets.returns.copy_(flat_steps(advantages_TB + values_TB))
        return flat_steps(advantages_TB)

    def _minibatches(self, update: Update, objective: PPOObjective) -> Sequence[Tensor]:
        starts = objective.sequences.starts
        order = torch.from_numpy(shuffled(self._run.seed, update.number, objective.epoch, len(starts)))
        return order.to(starts.device).tensor_split(self._num_minibatches)

    @property
    def _num_minibatches(self) -> int:
        assert self._settings.num_minibatches is not None, "chosen when the configuration was checked"
        return self._settings.num_minibatches

    def _learning_rate(self, update: Update) -> float:
        rate = self._settings.learning_rate
        return rate * self._run.remaining(update.number) if self._settings.anneal_learning_rate else rate

    def _clip_range(self, update: Update) -> float:
        clip_range = self._settings.clip_range
        return clip_range * self._run.remaining(update.number) if self._settings.anneal_clip_range else clip_range


def _is_far(loss: PPOLoss, settings: PPO) -> bool:
    return settings.target_kl is not None and bool(loss.approx_kl > 1.5 * settings.target_kl)


def _record(statistics: Statistics, loss: PPOLoss) -> None:
    statistics.add("train/policy_gradient_loss", loss.policy)
    statistics.add("train/value_loss", loss.value)
    statistics.add("train/entropy_loss", -loss.entropy)
    statistics.add("train/approx_kl", loss.approx_kl)
    statistics.add("train/clip_fraction", loss.clip_fraction)
    statistics.add("train/loss", loss.total)


def _summary(statistics: Statistics, batch: Batch, targets: PPOTargets) -> dict[str, float]:
    learned, values = batch.learned_rows(), flat_steps(batch.steps.values_TB)
    statistics.add("train/explained_variance", explained_variance(values[learned], targets.returns[learned]))
    return statistics.means()
