"""RLOO: REINFORCE whose baseline is the mean score of the prompt's other completions (arXiv 2402.14740)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from htsrl.algorithms.algorithm import Metrics, RunFacts, Update
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.sequences import Chosen
from htsrl.errors import ConfigError
from htsrl.language.algorithms.minibatches import Groups, NoTargets, TextSettings, improve_in_minibatches, learned
from htsrl.language.batch import TextBatch, by_group
from htsrl.language.losses import clipped_surrogate, leave_one_out_advantages, truncated_importance_loss
from htsrl.language.policy import TextPolicy


class Objective:
    """A mean over completions."""

    num_parts = 3
    epoch = 0
    names = ("train/loss", "train/ratio", "train/clip_ratio")

    def __init__(self, settings: RLOO.Settings, batch: TextBatch) -> None:
        self._settings = settings
        self._batch = batch
        self._groups = Groups(batch)
        scores = batch.scores
        if batch.ref_log_probs is not None:
            scores = scores - settings.beta * batch.kl_to_reference().sum(dim=1)
        size = batch.num_generations
        self.advantages = leave_one_out_advantages(by_group(scores, size), by_group(batch.scored, size)).flatten()

    def learned_rows(self, chosen: Chosen) -> Tensor:
        return learned(self._groups.rows(chosen), self._batch)

    def __call__(self, policy: TextPolicy, chosen: Chosen) -> tuple[Tensor, ...]:
        rows, settings = self.learned_rows(chosen), self._settings
        log_probs = self._batch.policy_log_probs(policy, rows).sum(dim=1)
        log_ratios = log_probs - self._batch.log_probs[rows].sum(dim=1)
        ratios, advantages = log_ratios.exp(), self.advantages[rows]
        if settings.importance_sampling_cap is None:
            loss = clipped_surrogate(ratios, advantages, settings.epsilon)
        else:
            loss = truncated_importance_loss(log_ratios, log_probs, advantages, settings.importance_sampling_cap)
        outside = ((ratios - 1).abs() > settings.epsilon).float().mean()
        return loss.mean(), ratios.mean(), outside


class RLOO:
    """Leave-one-out policy gradient on whole completions."""

    @dataclass(frozen=True)
    class Settings(TextSettings):
        """RLOO on whole completions."""

        beta: float = 0.05
        """What moving away from the reference model costs, taken off the score. 0: there is no reference model."""
        epsilon: float = 0.2
        """How far the ratio of a completion's probabilities may move from 1 before it stops to count."""
        importance_sampling_cap: float | None = None
        """In place of clipping, weights of old data are cut off here. None: clip."""

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
