"""What all algorithms on text have in common: their settings, and one update in minibatches of prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from htsrl.algorithms.algorithm import Metrics, RunFacts, Update
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.sequences import Chosen, count
from htsrl.errors import ConfigError
from htsrl.language.batch import TextBatch
from htsrl.seeding import shuffled


@dataclass(frozen=True)
class TextSettings:
    """Those of every algorithm on text."""

    default_sync_interval: ClassVar[int] = 1
    optimizer_epsilon: ClassVar[float] = 1e-8

    learning_rate: float = 1e-5
    """Step size of Adam."""
    lr_scheduler_type: Literal["constant", "linear"] = "constant"
    """linear: the step size falls to 0 over the run."""
    steps_per_generation: int = 1
    """N: minibatches that a rollout is cut into, each an optimizer step."""
    num_iterations: int = 1
    """T: how often a rollout is gone through."""
    max_grad_norm: float = 1.0
    """Gradients longer than this are scaled down to it."""

    def check(self) -> None:
        """ConfigError for what cannot work."""
        for name in ("steps_per_generation", "num_iterations"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1")
        if self.max_grad_norm <= 0:
            raise ConfigError(f"max_grad_norm={self.max_grad_norm} must be above 0")

    def rate(self, run: RunFacts, update: int) -> float:
        return self.learning_rate * (run.remaining(update) if self.lr_scheduler_type == "linear" else 1.0)


class NoTargets(NamedTuple):
    """Everything that gradients aim at follows from the batch, so nothing has to be handed to those who take them."""


class Groups:
    """The rows of some prompts' completions."""

    def __init__(self, batch: TextBatch) -> None:
        self._size = batch.num_generations
        self.count = len(batch.scores) // self._size
        self._device = batch.scores.device

    def rows(self, chosen: Chosen) -> Tensor:
        groups = chosen if isinstance(chosen, Tensor) else torch.arange(chosen.start, chosen.stop, device=self._device)
        return (groups[:, None] * self._size + torch.arange(self._size, device=self._device)).flatten()


def improve_in_minibatches(
    settings: TextSettings, run: RunFacts, update: Update, draft: Draft, batch: TextBatch, objective: Any
) -> Metrics:
    """Gradients of minibatches of prompts, an optimizer step each; returns means of what the objective reports."""
    num_groups, pieces = Groups(batch).count, settings.steps_per_generation
    rate, totals, norms = settings.rate(run, update.number), torch.zeros(objective.num_parts), []
    for epoch in range(settings.num_iterations):
        objective.epoch = epoch
        order = torch.from_numpy(shuffled(run.seed, update.number, epoch, num_groups))
        for chosen in order.tensor_split(pieces) if pieces > 1 else [slice(0, num_groups)]:
            if not count(objective.learned_rows(chosen)):
                continue  # nothing has ended, or nothing tells completions apart: there is no reason to move
            totals += draft.differentiate(objective, draft.policy, chosen).cpu()
            norms.append(float(draft.clip(settings.max_grad_norm)))
            draft.step(rate)
    means = totals / max(len(norms), 1)
    named = dict(zip(objective.names, means.tolist(), strict=True))
    return {
        **batch.metrics(update.number),
        **named,
        "train/gradient_norm": sum(norms) / max(len(norms), 1),
        "train/learning_rate": rate,
    }


def check_groups(num_generations: int, settings: TextSettings, num_columns: int, least: int) -> None:
    """ConfigError where the completions of a rollout cannot be cut as the settings ask for."""
    if num_generations < least:
        raise ConfigError(
            f"num_generations={num_generations} is too few: this algorithm compares completions of one prompt; use "
            f"{least} or more"
        )
    if num_columns % num_generations:
        raise ConfigError(
            f"generation_batch_size={num_columns} is no multiple of num_generations={num_generations}; use "
            f"{max(num_columns // num_generations, 1) * num_generations}"
        )
    num_groups = num_columns // num_generations
    if num_groups % settings.steps_per_generation:
        raise ConfigError(
            f"the {num_groups} prompts of a rollout do not divide into steps_per_generation="
            f"{settings.steps_per_generation} minibatches; use a divisor of {num_groups}"
        )


def learned(rows: Tensor, batch: TextBatch) -> Tensor:
    """Those of the rows that have a score."""
    return rows[batch.scored[rows]]


Names = Sequence[str]
