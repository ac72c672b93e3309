"""An off-policy algorithm as a user would write it: path consistency over a step (https://arxiv.org/abs/1702.08892).

V(s) = r + gamma V(s') - tau log pi(a | s) holds for any action where policy and values are the best with entropy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from htsrl import Network
from htsrl.extending import Batch, Chosen, Draft, Model, Models, NoTargets, Policy, RunFacts, Update


class Inconsistency:
    """The mean square of how far transitions of the replay buffer are from consistent."""

    num_parts = 2
    epoch = 0

    def __init__(self, settings: Any, run: RunFacts, update: Update, replay_buffer: Any) -> None:
        self._settings, self._seed, self._update, self._replay_buffer = settings, run.seed, update.number, replay_buffer

    def learned_rows(self, chosen: Chosen) -> Chosen:
        return chosen

    def loss_of(self, model: str, models: Models, chosen: Chosen) -> tuple[Tensor, ...]:
        settings = self._settings
        place = self._seed, self._update, self.epoch
        data = self._replay_buffer.sample(*place, size=settings.minibatch_size, discount=settings.discount)
        observations = {name: torch.from_numpy(x)[chosen] for name, x in data.observations.items()}
        following = {name: torch.from_numpy(x)[chosen] for name, x in data.next_observations.items()}
        actions, rewards, discounts = (
            torch.from_numpy(x)[chosen] for x in (data.actions, data.rewards, data.discounts)
        )
        distribution, values = models.policy(observations)
        with torch.no_grad():
            _, next_values = cast(Policy, models["target"])(following)
        error = rewards + discounts * next_values - values - settings.temperature * distribution.log_prob(actions)
        return error.square().mean(), values.mean()


class PathConsistency:
    @dataclass(frozen=True)
    class Settings:
        """Path consistency learning over single steps, from a replay buffer."""

        default_sync_interval: ClassVar[int] = 8
        learning_rate: float = 3e-3
        """Step size of Adam."""
        discount: float = 0.99
        """Gamma: what a reward one step later is worth."""
        temperature: float = 0.1
        """Weight of the entropy."""
        replay_capacity: int = 200
        """Transitions that are held."""
        minibatch_size: int = 16
        """Transitions in a gradient."""
        gradients: int = 3
        """Gradients in an update."""

    Targets = NoTargets
    differentiates_at_behaviour = False

    def __init__(self, settings: Settings, run: RunFacts) -> None:
        self._settings, self._run = settings, run

    def check(self) -> None:
        """Any settings work."""

    def models(self, interface: Any, network: Network) -> dict[str, Model]:
        return {"target": Model(lambda: Policy(interface, network), optimizer=None, copies="policy")}

    def objective(self, update: Update, batch: Batch, targets: NoTargets) -> Inconsistency:
        return Inconsistency(self._settings, self._run, update, batch.replay_buffer)

    def improve(self, update: Update, draft: Draft, batch: Batch) -> dict[str, float]:
        objective = self.objective(update, batch, NoTargets())
        for objective.epoch in range(self._settings.gradients):
            loss, value = draft.differentiate(objective, draft.models, slice(0, self._settings.minibatch_size))
            draft.clip(1.0)
            draft.step(self._settings.learning_rate)
            draft.follow("target", 0.05)
        return {"train/loss": loss.item(), "train/value": value.item()}
