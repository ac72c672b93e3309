"""Implicit Q-learning (https://arxiv.org/abs/2110.06169).

    value    minimises |tau - 1(u < 0)| u^2,                  u = min Q'(s, a) - V(s)
    critics  minimise (Q(s, a) - (r + gamma V(s')))^2, each of the two
    policy   minimises -min(exp(beta u), most) log pi(a | s)
    Q'       moves towards Q by tau

All of it is asked of actions in the dataset alone.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from htsrl.algorithms.algorithm import Metrics, RunFacts, Update
from htsrl.algorithms.batch import Batch
from htsrl.algorithms.critics import Critics
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.iql.settings import IQL
from htsrl.algorithms.minibatch_objective import NoTargets, check_shards_of_minibatch
from htsrl.algorithms.models import Model, Models, with_target
from htsrl.algorithms.offline import DatasetObjective, Transitions, check_critics_fit
from htsrl.algorithms.statistics import Statistics
from htsrl.config import Network
from htsrl.policies.encoders import Encoder, encoder_for
from htsrl.policies.layers import Dense, Mlp
from htsrl.spaces import Interface


class Value(nn.Module):
    """The value of what is seen."""

    def __init__(self, interface: Interface, network: Network) -> None:
        super().__init__()
        self.encoder: Encoder = encoder_for(
            interface.observations, Network(hidden_sizes=(), precision=network.precision)
        )
        self.hidden = Mlp(self.encoder.num_features, network.hidden_sizes, network.activation)
        self.head = Dense(self.hidden.num_features, 1)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        return cast(Tensor, self.head(self.hidden(self.encoder.side_by_side(observations))).squeeze(-1))


class IQLObjective(DatasetObjective[IQL]):
    """The losses of value, critics and policy."""

    num_parts = 3

    def _value_loss(self, models: Models, data: Transitions) -> tuple[Tensor, ...]:
        values, advantages = _values_and_advantages(models, data)
        weights = torch.where(advantages < 0, 1 - self._settings.expectile, self._settings.expectile)
        loss = (weights * advantages.square()).mean()
        return loss, values.mean(), advantages.mean()

    def _critics_loss(self, models: Models, data: Transitions) -> tuple[Tensor, ...]:
        with torch.no_grad():
            targets = data.rewards + data.discounts * models["value"](data.next_observations)
        values = models["critics"](data.observations, data.actions)
        loss = (values - targets).square().mean(dim=1).sum()
        return loss, values.mean(), targets.mean()

    def _policy_loss(self, models: Models, data: Transitions) -> tuple[Tensor, ...]:
        settings = self._settings
        with torch.no_grad():
            _, advantages = _values_and_advantages(models, data)
            weights = (settings.advantage_weight * advantages).exp().clamp(max=settings.max_advantage_weight)
        distribution, _ = models.policy(data.observations)
        loss = -(weights * distribution.log_prob(data.actions)).mean()
        return loss, distribution.entropy().mean(), weights.mean()


def _values_and_advantages(models: Models, data: Transitions) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        action_values = models["target_critics"](data.observations, data.actions).amin(dim=0)
    values = models["value"](data.observations)
    return values, action_values - values


class IQLAlgorithm:
    """Gradient steps on minibatches of a dataset."""

    Settings = IQL
    Targets = NoTargets
    differentiates_at_behaviour = False

    def __init__(self, settings: IQL, run: RunFacts) -> None:
        self._settings = settings
        self._run = run

    def check(self) -> None:
        check_shards_of_minibatch(self._settings, self._run)

    def models(self, interface: Interface, network: Network) -> dict[str, Model]:
        check_critics_fit("iql", interface, network)
        return {
            **with_target("critics", lambda: Critics(interface, network)),
            "value": Model(lambda: Value(interface, network)),
        }

    def objective(self, update: Update, batch: Batch, targets: NoTargets) -> IQLObjective:
        assert batch.dataset is not None
        return IQLObjective(self._settings, self._run.seed, update.number, batch.dataset)

    def improve(self, update: Update, draft: Draft, batch: Batch) -> Metrics:
        settings, statistics = self._settings, Statistics()
        objective = self.objective(update, batch, NoTargets())
        for step in range(self._run.unroll_steps):
            objective.epoch = step
            value = objective.minimise("value", draft, settings.learning_rate)
            policy = objective.minimise("policy", draft, settings.learning_rate)
            critics = objective.minimise("critics", draft, settings.learning_rate)
            draft.follow("target_critics", settings.follow_rate)
            _record(statistics, value, policy, critics)
        return statistics.means()


def _record(statistics: Statistics, value: Tensor, policy: Tensor, critics: Tensor) -> None:
    statistics.add("train/value_loss", value[0])
    statistics.add("train/advantage", value[2])
    statistics.add("train/policy_loss", policy[0])
    statistics.add("train/entropy", policy[1])
    statistics.add("train/critic_loss", critics[0])
    statistics.add("train/q_value", critics[1])
