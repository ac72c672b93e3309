"""Online DPO: of every prompt, prefer the best completion to the worst (arXiv 2402.04792)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from htsrl.algorithms.algorithm import Metrics, RunFacts, Update
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.sequences import Chosen
from htsrl.errors import ConfigError
from htsrl.language.algorithms.minibatches import NoTargets, TextSettings, improve_in_minibatches
from htsrl.language.batch import TextBatch, by_group
from htsrl.language.losses import best_and_worst, preference_loss
from htsrl.language.policy import TextPolicy


class Objective:
    """A mean over prompts whose best completion is better than the worst."""

    num_parts = 3
    epoch = 0
    names = ("train/loss", "train/accuracy", "train/margin")

    def __init__(self, settings: OnlineDPO.Settings, batch: TextBatch) -> None:
        self._settings = settings
        self._batch = batch
        size = batch.num_generations
        best, worst, self.differs = best_and_worst(by_group(batch.scores, size), by_group(batch.scored, size))
        first = torch.arange(len(best), device=best.device) * size
        self.best, self.worst = first + best, first + worst
        assert batch.ref_log_probs is not None, "there is no reference model"
        self._reference = batch.ref_log_probs.sum(dim=1)

    def learned_rows(self, chosen: Chosen) -> Tensor:
        """The prompts that tell something."""
        groups = torch.arange(len(self.best), device=self.best.device)[chosen]
        return groups[self.differs[groups]]

    def __call__(self, policy: TextPolicy, chosen: Chosen) -> tuple[Tensor, ...]:
        groups = self.learned_rows(chosen)
        rows = torch.cat([self.best[groups], self.worst[groups]])
        gains = self._batch.policy_log_probs(policy, rows).sum(dim=1) - self._reference[rows]
        better, worse = gains.chunk(2)
        margins = better - worse
        loss = preference_loss(margins, self._settings.beta, self._settings.loss_type)
        return loss.mean(), (margins > 0).float().mean(), margins.mean() * self._settings.beta


class OnlineDPO:
    """Direct preference optimisation on completions of one's own."""

    @dataclass(frozen=True)
    class Settings(TextSettings):
        """Online DPO on the best and the worst completion of each prompt."""

        beta: float = 0.1
        """How strongly the policy is kept to the reference model."""
        loss_type: Literal["sigmoid", "ipo"] = "sigmoid"
        """DPO's loss, or IPO's."""

    Batch = TextBatch
    Targets = NoTargets
    differentiates_at_behaviour = False
    least_generations = 2
    has_values = False
    needs_reference = True

    def __init__(self, settings: Settings, run: RunFacts) -> None:
        self.settings = settings
        self.run = run

    def check(self) -> None:
        self.settings.check()
        if self.settings.beta <= 0:
            raise ConfigError(f"beta={self.settings.beta} must be above 0 for online DPO, whose loss is about it")

    def objective(self, update: Update, batch: TextBatch, targets: NoTargets) -> Objective:
        return Objective(self.settings, batch)

    def improve(self, update: Update, draft: Draft, batch: TextBatch) -> Metrics:
        objective = self.objective(update, batch, NoTargets())
        metrics = improve_in_minibatches(self.settings, self.run, update, draft, batch, objective)
        return metrics | {"train/ties": float((~objective.differs).sum())}
