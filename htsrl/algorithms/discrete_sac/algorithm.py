"""Soft actor-critic for a choice among actions (https://arxiv.org/abs/1910.07207).

    V(s)     = sum over a of pi(a | s) (min Q(s, a) - alpha log pi(a | s))
    y        = r + gamma V'(s')
    critics  minimise (Q(s, a) - y)^2, each of the two
    policy   minimises -V(s), with the critics as they are
    alpha    minimises log alpha (entropy of pi(s) - target entropy)
    Q'       moves towards Q by tau

All actions are summed over, so nothing is drawn. What a mask forbids has a probability of 0.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from htsrl.algorithms.algorithm import Metrics, RunFacts, Update
from htsrl.algorithms.batch import Batch
from htsrl.algorithms.discrete_sac.settings import DiscreteSAC
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.max_entropy import Temperature, record, temperature_loss, temperature_of
from htsrl.algorithms.minibatch_objective import NoTargets
from htsrl.algorithms.models import Model, Models, with_target
from htsrl.algorithms.off_policy import (
    ReplayObjective,
    Transitions,
    check_network,
    check_replay,
    check_single_choice,
    gradient_steps,
    mean_over_rows,
    scaled,
)
from htsrl.algorithms.statistics import Statistics
from htsrl.config import Network
from htsrl.policies.distributions import Categorical
from htsrl.policies.encoders import Encoder, encoder_for
from htsrl.policies.layers import Dense
from htsrl.policies.policy import Policy
from htsrl.seeding import ActionNoise
from htsrl.spaces import Interface
from htsrl.spaces.observations import MASK_KEY


class ChoiceCritics(nn.Module):
    """Two values of every action, each critic with an encoder of its own."""

    def __init__(self, interface: Interface, network: Network) -> None:
        super().__init__()
        seen = {name: leaf for name, leaf in interface.observations.items() if name != MASK_KEY}
        self.encoders = nn.ModuleList(encoder_for(seen, network) for _ in range(2))
        num_actions = interface.actions.categories[0]
        self.heads = nn.ModuleList(Dense(cast(Encoder, part).num_features, num_actions) for part in self.encoders)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """`[2, rows, actions]`."""
        both = zip(self.encoders, self.heads, strict=True)
        return torch.stack([head(encoder(observations)) for encoder, head in both])


class DiscreteSACObjective(ReplayObjective[DiscreteSAC, Transitions]):
    """The losses of critics, policy and temperature."""

    def _critics_loss(self, models: Models, data: Transitions) -> tuple[Tensor, ...]:
        with torch.no_grad():
            following = soft_values(models, data.next_observations, "target_critics")
            targets = data.rewards + data.discounts * following
        of_all = models["critics"](scaled(models.policy, data.observations))
        values = of_all.gather(2, data.actions.expand(2, -1).unsqueeze(2)).squeeze(2)
        self.note_errors(data.numbers, (values - targets).abs().mean(dim=0))
        return mean_over_rows((values - targets).square(), data.weights).sum(), values.mean(), targets.mean()

    def _policy_loss(self, models: Models, data: Transitions) -> tuple[Tensor, ...]:
        values = soft_values(models, data.observations, "critics")
        entropy = choices(models.policy, data.observations).entropy().mean()
        return -values.mean(), entropy, values.mean()

    def _temperature_loss(self, models: Models, data: Transitions) -> tuple[Tensor, ...]:
        with torch.no_grad():
            entropy = choices(models.policy, data.observations).entropy()
        target = self._settings.target_entropy_share * math.log(models.policy.interface.actions.categories[0])
        return temperature_loss(models, entropy, target)

    def _draw(self, noise: ActionNoise, device: torch.device) -> Transitions:
        return self._transitions(device)


class DiscreteSACAlgorithm:
    """Gradient steps on minibatches of the replay buffer, so many for every step of an environment."""

    Settings = DiscreteSAC
    Targets = NoTargets
    differentiates_at_behaviour = False

    def __init__(self, settings: DiscreteSAC, run: RunFacts) -> None:
        self._settings = settings
        self._run = run

    def check(self) -> None:
        check_replay("discrete SAC", self._settings, self._run)

    def models(self, interface: Interface, network: Network) -> dict[str, Model]:
        check_single_choice("discrete SAC", interface)
        check_network("discrete SAC", network)
        return {
            **with_target("critics", lambda: ChoiceCritics(interface, network)),
            "temperature": Model(lambda: Temperature(self._settings.initial_temperature)),
        }

    def objective(self, update: Update, batch: Batch, targets: NoTargets) -> DiscreteSACObjective:
        assert batch.replay_buffer is not None
        return DiscreteSACObjective(self._settings, self._run.seed, update.number, batch.replay_buffer)

    def improve(self, update: Update, draft: Draft, batch: Batch) -> Metrics:
        settings, statistics = self._settings, Statistics()
        objective = self.objective(update, batch, NoTargets())
        for objective.epoch, _ in enumerate(gradient_steps(settings, update.number, batch.log_probs.numel())):
            critics = objective.minimise("critics", draft, settings.learning_rate)
            objective.revise_priorities()
            policy = objective.minimise("policy", draft, settings.learning_rate)
            temperature = objective.minimise("temperature", draft, settings.temperature_learning_rate)
            draft.follow("target_critics", settings.follow_rate)
            record(statistics, critics, policy, temperature[1])
        return statistics.means()


def choices(policy: Policy, observations: dict[str, Tensor]) -> Categorical:
    distribution, _ = policy(observations)
    return cast(Categorical, distribution)


def soft_values(models: Models, observations: dict[str, Tensor], critics: str) -> Tensor:
    """What is expected of the policy from here on, by the smaller of two critics, its entropy included."""
    log_probs = choices(models.policy, observations).log_probs
    values: Tensor = models[critics](scaled(models.policy, observations)).amin(dim=0)
    return (log_probs.exp() * (values - temperature_of(models).detach() * log_probs)).sum(dim=-1)
