"""GRPO: PPO's clipped loss on tokens, with the prompt's other completions in place of a critic (arXiv 2402.03300)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from htsrl.algorithms.algorithm import Metrics, RunFacts, Update
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.sequences import Chosen
from htsrl.errors import ConfigError
from htsrl.language.algorithms.minibatches import Groups, NoTargets, TextSettings, improve_in_minibatches, learned
from htsrl.language.batch import TextBatch, by_group
from htsrl.language.losses import clipped_surrogate, group_advantages, low_variance_kl, truncated_importance_loss
from htsrl.language.policy import TextPolicy


class Objective:
    """A mean over completions, each of which is a mean over its tokens."""

    num_parts = 4
    epoch = 0
    names = ("train/loss", "train/ratio", "train/clip_ratio", "train/kl")

    def __init__(self, settings: GRPO.Settings, batch: TextBatch) -> None:
        self._settings = settings
        self._batch = batch
        self._groups = Groups(batch)
        scores, scored = (by_group(x, batch.num_generations) for x in (batch.scores, batch.scored))
        self.advantages = group_advantages(scores, scored, settings.scale_rewards).flatten()

    def learned_rows(self, chosen: Chosen) -> Tensor:
        return learned(self._groups.rows(chosen), self._batch)

    def __call__(self, policy: TextPolicy, chosen: Chosen) -> tuple[Tensor, ...]:
        rows, batch, settings = self.learned_rows(chosen), self._batch, self._settings
        mask, advantages = batch.mask[rows], self.advantages[rows, None]
        log_probs = batch.policy_log_probs(policy, rows)
        log_ratios = log_probs - batch.log_probs[rows]
        ratios = log_ratios.exp()
        if settings.importance_sampling_cap is None:
            loss = clipped_surrogate(ratios, advantages, settings.epsilon)
        else:
            loss = truncated_importance_loss(log_ratios, log_probs, advantages, settings.importance_sampling_cap)
        kl = log_probs.new_zeros(())
        if batch.ref_log_probs is not None:
            per_token = low_variance_kl(log_probs, batch.ref_log_probs[rows])
            loss = loss + settings.beta * per_token
            kl = self._mean(per_token, mask)
        outside = ((ratios - 1).abs() > settings.epsilon).float()
        return self._mean(loss, mask), _token_mean(ratios, mask), _token_mean(outside, mask), kl

    def _mean(self, per_token: Tensor, mask: Tensor) -> Tensor:
        """Of a completion its own mean, or, as in Dr. GRPO, its sum over a length that is the same for all."""
        tokens = mask.sum(dim=1) if self._settings.loss_type == "grpo" else mask.shape[1]
        return ((per_token * mask).sum(dim=1) / tokens).mean()


def _token_mean(per_token: Tensor, mask: Tensor) -> Tensor:
    return (per_token * mask).sum() / mask.sum()


class GRPO:
    """Group-relative policy optimisation."""

    @dataclass(frozen=True)
    class Settings(TextSettings):
        """GRPO on the tokens of completions."""

        beta: float = 0.0
        """What moving away from the reference model costs, in the loss. 0: there is no reference model."""
        epsilon: float = 0.2
        """How far the ratio of a token's probabilities may move from 1 before it stops to count."""
        importance_sampling_cap: float | None = None
        """In place of clipping, weights of old data are cut off here. None: clip."""
        scale_rewards: bool = True
        """Divide advantages by the standard deviation of the prompt's scores."""
        loss_type: Literal["grpo", "dr_grpo"] = "grpo"
        """grpo: a mean over each completion's tokens. dr_grpo: their sum over max_completion_length
        (arXiv 2503.20783)."""

    Batch = TextBatch
    Targets = NoTargets
    differentiates_at_behaviour = False
    least_generations = 2
    has_values = False

    def __init__(self, settings: Settings, run: RunFacts) -> None:
        self.settings = settings
        self.run = run

    @property
    def needs_reference(self) -> bool:
        return self.settings.beta != 0

    def check(self) -> None:
        self.settings.check()
        if self.settings.importance_sampling_cap is not None and self.settings.importance_sampling_cap <= 0:
            raise ConfigError(f"importance_sampling_cap={self.settings.importance_sampling_cap} must be above 0")

    def objective(self, update: Update, batch: TextBatch, targets: NoTargets) -> Objective:
        return Objective(self.settings, batch)

    def improve(self, update: Update, draft: Draft, batch: TextBatch) -> Metrics:
        objective = self.objective(update, batch, NoTargets())
        return improve_in_minibatches(self.settings, self.run, update, draft, batch, objective)
