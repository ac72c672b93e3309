"""Best-of-K: make the best completion of every prompt more likely, as supervised learning would."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from htsrl.algorithms.algorithm import Metrics, RunFacts, Update
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.sequences import Chosen
from htsrl.language.algorithms.minibatches import NoTargets, TextSettings, improve_in_minibatches
from htsrl.language.batch import TextBatch, by_group
from htsrl.language.losses import best_and_worst
from htsrl.language.policy import TextPolicy


class Objective:
    """A mean over prompts whose best completion is better than the worst."""

    num_parts = 1
    epoch = 0
    names = ("train/loss",)

    def __init__(self, batch: TextBatch) -> None:
        self._batch = batch
        size = batch.num_generations
        best, _, self.differs = best_and_worst(by_group(batch.scores, size), by_group(batch.scored, size))
        self.best = torch.arange(len(best), device=best.device) * size + best

    def learned_rows(self, chosen: Chosen) -> Tensor:
        """The prompts that tell something."""
        groups = torch.arange(len(self.best), device=self.best.device)[chosen]
        return groups[self.differs[groups]]

    def __call__(self, policy: TextPolicy, chosen: Chosen) -> tuple[Tensor, ...]:
        rows = self.best[self.learned_rows(chosen)]
        return (-self._batch.policy_log_probs(policy, rows).sum(dim=1).mean(),)


class BestOfK:
    """Supervised learning on the best of one's own completions."""

    @dataclass(frozen=True)
    class Settings(TextSettings):
        """Best-of-K: the negative log-probability of the best completion of each prompt."""

    Batch = TextBatch
    Targets = NoTargets
    differentiates_at_behaviour = False
    least_generations = 2
    has_values = False
    needs_reference = False

    def __init__(self, settings: Settings, run: RunFacts) -> None:
        self.settings = settings
        self.run = run

    def check(self) -> None:
        self.settings.check()

    def objective(self, update: Update, batch: TextBatch, targets: NoTargets) -> Objective:
        return Objective(batch)

    def improve(self, update: Update, draft: Draft, batch: TextBatch) -> Metrics:
        objective = self.objective(update, batch, NoTargets())
        metrics = improve_in_minibatches(self.settings, self.run, update, draft, batch, objective)
        return metrics | {"train/ties": float((~objective.differs).sum())}
