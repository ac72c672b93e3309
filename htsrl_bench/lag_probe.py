"""PPO that also measures what the lag is: how far the version that an update starts from is from the one that acted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from htsrl.algorithms.ppo import PPO
from htsrl.algorithms.ppo.algorithm import PPOAlgorithm, PPOObjective, PPOTargets
from htsrl.extending import Batch, Draft, Metrics, Policy, RunFacts, Update, flat_steps, gae

RATIO_DEVIATION = "lag/ratio_deviation"
OUTSIDE_CLIP = "lag/outside_clip"
DIVERGENCE = "lag/divergence"
GRADIENT_COSINE = "lag/gradient_cosine"
GRADIENT_LENGTH = "lag/gradient_length"
MEASURED = (RATIO_DEVIATION, OUTSIDE_CLIP, DIVERGENCE, GRADIENT_COSINE, GRADIENT_LENGTH)


class LagProbe:
    """PPO, update by update the same to the bit, with a few more metrics."""

    @dataclass(frozen=True)
    class Settings:
        """Some of PPO's settings; the others have PPO's defaults."""

        default_sync_interval: ClassVar[int] = PPO.default_sync_interval

        epochs: int = 10
        """Passes over the batch per update."""
        num_minibatches: int = 16
        """Pieces of the batch, each one optimizer step."""
        normalize_rewards: bool = False
        """Divide rewards by the running deviation of the discounted return."""
        optimizer_epsilon: float = PPO.optimizer_epsilon
        """Added to the denominator of the update rule."""

    Targets = PPOTargets
    differentiates_at_behaviour = False

    def __init__(self, settings: Settings, run: RunFacts) -> None:
        self._settings, self._run = PPO(**asdict(settings)), run
        self._ppo = PPOAlgorithm(self._settings, run)

    def check(self) -> None:
        self._ppo.check()

    def objective(self, update: Update, batch: Batch, targets: PPOTargets) -> PPOObjective:
        return self._ppo.objective(update, batch, targets)

    def improve(self, update: Update, draft: Draft, batch: Batch) -> Metrics:
        assert update.behaviour is not None, "a lag is measured between two versions, and here several made the batch"
        measured = lag_metrics(self._settings, self._run, batch, (update.behaviour, draft.policy))
        return self._ppo.improve(update, draft, batch) | measured


def lag_metrics(settings: PPO, run: RunFacts, batch: Batch, versions: Sequence[Policy]) -> Metrics:
    """`versions` are the one that made the batch and the newest."""
    targets = PPOTargets(*(torch.zeros_like(flat_steps(batch.log_probs)) for _ in PPOTargets._fields))
    objective = PPOObjective(settings, batch, targets, "none", sequence_steps=run.sequence_steps)
    objective.normalize_all_advantages(
        flat_steps(gae(batch.steps, settings.discount, settings.gae_lambda, run.unroll_steps))
    )
    acted, now = (_policy_gradient(objective, policy) for policy in versions)
    with torch.no_grad():
        seen = objective.see(versions[1], objective.sequences.choose(objective.all_sequences))
        log_ratios = seen.distribution.log_prob(seen.actions) - flat_steps(batch.log_probs)[seen.rows]
        deviations = (log_ratios.exp() - 1).abs()
    return {
        RATIO_DEVIATION: float(deviations.mean()),
        OUTSIDE_CLIP: float((deviations > settings.clip_range).float().mean()),
        # Of the version that acted from the newest, as PPO estimates it: http://joschu.net/blog/kl-approx.html
        DIVERGENCE: float((log_ratios.exp() - 1 - log_ratios).mean()),
        GRADIENT_COSINE: float(torch.nn.functional.cosine_similarity(acted, now, dim=0)),
        GRADIENT_LENGTH: float(now.norm() / acted.norm()),
    }


def _policy_gradient(objective: PPOObjective, policy: Policy) -> Tensor:
    """Of the clipped surrogate over the whole batch, flat."""
    with torch.enable_grad():
        loss = objective(policy, objective.all_sequences)[1]
        parameters: list[Any] = [x for x in policy.parameters() if x.requires_grad]
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
    return torch.cat(
        [torch.zeros_like(x).flatten() if g is None else g.flatten() for x, g in zip(parameters, found, strict=True)]
    )
