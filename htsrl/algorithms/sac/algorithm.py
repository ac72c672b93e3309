"""Soft actor-critic with a learned temperature (https://arxiv.org/abs/1812.05905).

    y        = r + gamma (min Q'(s', a') - alpha log pi(a' | s')),   a' ~ pi(s')
    critics  minimise (Q(s, a) - y)^2, each of the two
    policy   minimises alpha log pi(a | s) - min Q(s, a),            a ~ pi(s), reparametrised
    alpha    minimises -log alpha (log pi(a | s) + target entropy)
    Q'       moves towards Q by tau

Actions are as the policy drew them, before the hyperbolic tangent; critics see them behind it, in [-1, 1].
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from htsrl.algorithms.algorithm import Metrics, RunFacts, Update
from htsrl.algorithms.batch import Batch
from htsrl.algorithms.critics import Critics
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.max_entropy import (
    Temperature,
    drawn,
    policy_loss,
    record,
    target_entropy,
    temperature_of,
)
from htsrl.algorithms.minibatch_objective import NoTargets
from htsrl.algorithms.models import Model, Models, with_target
from htsrl.algorithms.off_policy import (
    ReplayObjective,
    check_bounded_box,
    check_network,
    check_replay,
    check_vectors,
    gradient_steps,
    mean_over_rows,
    scaled,
)
from htsrl.algorithms.sac.settings import SAC
from htsrl.algorithms.statistics import Statistics
from htsrl.config import Network
from htsrl.seeding import ActionNoise
from htsrl.spaces import Interface


class Minibatch(NamedTuple):
    """Transitions drawn from the replay buffer, and noise for actions at both ends of them."""

    observations: dict[str, Tensor]
    actions: Tensor
    rewards: Tensor
    next_observations: dict[str, Tensor]
    discounts: Tensor
    noise: Tensor
    next_noise: Tensor
    weights: Tensor | None = None
    """What each counts for the critics, where they were drawn by priority."""
    numbers: Tensor | None = None
    """Which row of the minibatch each is, where they were drawn by priority."""


class SACObjective(ReplayObjective[SAC, Minibatch]):
    """The losses of critics, policy and temperature."""

    def _critics_loss(self, models: Models, data: Minibatch) -> tuple[Tensor, ...]:
        with torch.no_grad():
            actions, log_probs = drawn(models.policy, data.next_observations, data.next_noise)
            following = models["target_critics"](scaled(models.policy, data.next_observations), actions).amin(dim=0)
            targets = data.rewards + data.discounts * (following - temperature_of(models) * log_probs)
        values = models["critics"](scaled(models.policy, data.observations), data.actions)
        loss = mean_over_rows((values - targets).square(), data.weights).sum()
        self.note_errors(data.numbers, (values - targets).abs().mean(dim=0))
        return loss, values.mean(), targets.mean()

    def _policy_loss(self, models: Models, data: Minibatch) -> tuple[Tensor, ...]:
        return policy_loss(models, data.observations, scaled(models.policy, data.observations), data.noise)

    def _draw(self, noise: ActionNoise, device: torch.device) -> Minibatch:
        found = self._transitions(device)
        here, behind = (self._noise(noise, end, 2, device) for end in range(2))
        return Minibatch(*found[:5], here, behind, found.weights, found.numbers)


class SACAlgorithm:
    """Gradient steps on minibatches of the replay buffer, so many for every step of an environment."""

    Settings = SAC
    Targets = NoTargets
    differentiates_at_behaviour = False

    def __init__(self, settings: SAC, run: RunFacts) -> None:
        self._settings = settings
        self._run = run

    def check(self) -> None:
        check_replay("SAC", self._settings, self._run)

    def models(self, interface: Interface, network: Network) -> dict[str, Model]:
        check_bounded_box("SAC", interface)
        check_vectors("SAC", interface)
        check_network("SAC", network)
        return {
            **with_target("critics", lambda: Critics(interface, network)),
            "temperature": Model(lambda: Temperature(self._settings.initial_temperature)),
        }

    def objective(self, update: Update, batch: Batch, targets: NoTargets) -> SACObjective:
        assert batch.replay_buffer is not None
        return SACObjective(self._settings, self._run.seed, update.number, batch.replay_buffer)

    def improve(self, update: Update, draft: Draft, batch: Batch) -> Metrics:
        settings, statistics = self._settings, Statistics()
        objective = self.objective(update, batch, NoTargets())
        target = target_entropy(settings.target_entropy, draft.policy.interface.actions.num_continuous)
        for objective.epoch, _ in enumerate(gradient_steps(settings, update.number, batch.log_probs.numel())):
            critics = objective.minimise("critics", draft, settings.learning_rate)
            objective.revise_priorities()
            policy = objective.minimise("policy", draft, settings.learning_rate)
            alpha, entropy = temperature_of(draft.models).detach(), policy[1]
            draft.set_gradient("temperature", entropy - target)
            draft.step(settings.temperature_learning_rate)
            draft.follow("target_critics", settings.follow_rate)
            record(statistics, critics, policy, alpha)
        return statistics.means()
