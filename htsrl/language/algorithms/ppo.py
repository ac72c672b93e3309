"""PPO on tokens, with a value head beside the model's own (arXiv 2203.02155)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from htsrl.algorithms.algorithm import Metrics, RunFacts, Update
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.sequences import Chosen
from htsrl.errors import ConfigError
from htsrl.language.algorithms.minibatches import Groups, NoTargets, TextSettings, improve_in_minibatches, learned
from htsrl.language.batch import TextBatch
from htsrl.language.losses import clipped_surrogate, token_advantages, token_rewards, whitened
from htsrl.language.policy import TextPolicy


class Objective:
    """A mean over the tokens of completions."""

    num_parts = 4
    epoch = 0
    names = ("train/loss", "train/policy_loss", "train/value_loss", "train/clip_ratio")

    def __init__(self, settings: TextPPO.Settings, batch: TextBatch) -> None:
        self._settings = settings
        self._batch = batch
        self._groups = Groups(batch)
        assert batch.values is not None, "there is no value head"
        mask = batch.mask & batch.scored[:, None]
        kl = torch.zeros_like(batch.values) if batch.ref_log_probs is None else batch.kl_to_reference()
        rewards = token_rewards(batch.scores, kl, batch.num_tokens, settings.beta, batch.turn_rewards)
        advantages = token_advantages(rewards, batch.values, mask, settings.gamma, settings.lam)
        self.returns = advantages + batch.values
        self.advantages = whitened(advantages, mask)

    def learned_rows(self, chosen: Chosen) -> Tensor:
        """All tokens that count, one after another."""
        rows = learned(self._groups.rows(chosen), self._batch)
        return self._batch.mask[rows].flatten().nonzero().squeeze(1)

    def __call__(self, policy: TextPolicy, chosen: Chosen) -> tuple[Tensor, ...]:
        batch, settings = self._batch, self._settings
        rows = learned(self._groups.rows(chosen), batch)
        texts = (batch.tokens[rows], batch.prompt_lengths[rows], batch.lengths[rows])
        log_probs, values = policy.log_probs_and_values(*texts, batch.log_probs.shape[1])
        mask, old_values = batch.mask[rows], batch.values
        assert old_values is not None, "there is no value head"
        ratios = (log_probs - batch.log_probs[rows]).exp()
        policy_loss = clipped_surrogate(ratios, self.advantages[rows], settings.cliprange)
        value_loss = _clipped_value_loss(values, old_values[rows], self.returns[rows], settings.cliprange_value)
        outside = ((ratios - 1).abs() > settings.cliprange).float()
        of_policy, of_value, clipped = (x[mask].mean() for x in (policy_loss, value_loss, outside))
        return of_policy + settings.vf_coef * of_value, of_policy, of_value, clipped


def _clipped_value_loss(values: Tensor, old_values: Tensor, returns: Tensor, clip: float) -> Tensor:
    """Half the squared error, of the value or of what it may move to, whichever is worse."""
    moved = old_values + (values - old_values).clamp(-clip, clip)
    return 0.5 * torch.max((values - returns).square(), (moved - returns).square())


class TextPPO:
    """Proximal policy optimisation on tokens."""

    @dataclass(frozen=True)
    class Settings(TextSettings):
        """PPO on the tokens of completions, with a value head."""

        beta: float = 0.05
        """What moving away from the reference model costs, at every token. 0: there is no reference model."""
        gamma: float = 1.0
        """What a reward one token later is worth."""
        lam: float = 0.95
        """Lambda of generalised advantage estimates."""
        cliprange: float = 0.2
        """How far the ratio of a token's probabilities may move from 1 before it stops to count."""
        cliprange_value: float = 0.2
        """How far a value may move in one update before it stops to count."""
        vf_coef: float = 0.1
        """Weight of the value loss."""

    Batch = TextBatch
    Targets = NoTargets
    differentiates_at_behaviour = False
    least_generations = 1
    has_values = True

    def __init__(self, settings: Settings, run: RunFacts) -> None:
        self.settings = settings
        self.run = run

    @property
    def needs_reference(self) -> bool:
        return self.settings.beta != 0

    def check(self) -> None:
        settings = self.settings
        settings.check()
        for name in ("gamma", "lam"):
            if not 0 <= getattr(settings, name) <= 1:
                raise ConfigError(f"{name}={getattr(settings, name)} must be from 0 to 1")

    def objective(self, update: Update, batch: TextBatch, targets: NoTargets) -> Objective:
        return Objective(self.settings, batch)

    def improve(self, update: Update, draft: Draft, batch: TextBatch) -> Metrics:
        objective = self.objective(update, batch, NoTargets())
        return improve_in_minibatches(self.settings, self.run, update, draft, batch, objective)
