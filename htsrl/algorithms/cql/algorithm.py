"""Conservative Q-learning on soft actor-critic (https://arxiv.org/abs/2006.04779).

    y        = r + gamma min Q'(s', a'),                               a' ~ pi(s')
    critics  minimise (Q(s, a) - y)^2 + w (log sum_a exp Q(s, a) - Q(s, a of the dataset)), each of the two
    policy   minimises alpha log pi(a | s) - min Q(s, a),              a ~ pi(s), reparametrised
    alpha    minimises -log alpha (log pi(a | s) + target entropy)
    Q'       moves towards Q by tau

The sum over all actions is estimated by importance sampling, from actions that are uniform, the policy's at s, and the
policy's at s'. Actions are as the policy draws them, before the hyperbolic tangent; critics see them behind it.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor

from htsrl.algorithms.algorithm import Metrics, RunFacts, Update
from htsrl.algorithms.batch import Batch
from htsrl.algorithms.cql.settings import CQL, ConservativeSettings
from htsrl.algorithms.critics import Critics
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.minibatch_objective import NoTargets, check_shards_of_minibatch
from htsrl.algorithms.models import Model, Models
from htsrl.algorithms.offline import DatasetObjective, Transitions, check_critics_fit
from htsrl.algorithms.sac.algorithm import Temperature, drawn, temperature_of
from htsrl.algorithms.sequences import Chosen
from htsrl.algorithms.statistics import Statistics
from htsrl.config import Network
from htsrl.datasets.action_rows import SATURATED
from htsrl.policies.policy import Policy
from htsrl.sources.dataset import DatasetSampler
from htsrl.spaces import Interface

LOG_UNIFORM_DENSITY = math.log(0.5)
"""Of a dimension of actions in [-1, 1]."""
NEW, NEXT, MORE_NEW, MORE_NEXT, UNIFORM = range(5)
"""What noise is for: an action at s, one at s', and those that the sum over all actions is estimated from."""


class CQLObjective(DatasetObjective[ConservativeSettings]):
    """The losses of critics, policy and temperature."""

    num_parts = 4

    def __init__(self, settings: ConservativeSettings, seed: int, update: int, data: DatasetSampler) -> None:
        super().__init__(settings, seed, update, data)
        self.noise_rows = (1, 1, *[settings.sampled_actions] * 3)

    def loss_of(self, model: str, models: Models, chosen: Chosen) -> tuple[Tensor, ...]:
        data = self._minibatch(models.policy).rows(chosen)
        if model == "critics":
            return self._critics_loss(models, data)
        if model == "temperature":
            return self._temperature_loss(models, data)
        return self._policy_loss(models, data)

    def _critics_loss(self, models: Models, data: Transitions) -> tuple[Tensor, ...]:
        with torch.no_grad():
            actions, _ = drawn(models.policy, data.next_observations, data.noise[NEXT][:, 0])
            following = models["target_critics"](data.next_observations, actions).amin(dim=0)
            targets = data.rewards + data.discounts * following
        values = models["critics"](data.observations, data.actions)
        error = (values - targets).square().mean(dim=1).sum()
        excess = (self._soft_maximum(models, data) - values).mean(dim=1).sum()
        return error + self._settings.conservative_weight * excess, values.mean(), targets.mean(), excess

    def _soft_maximum(self, models: Models, data: Transitions) -> Tensor:
        """`[2, rows]`: log of the mean over sampled actions of exp Q / density."""
        rows, count = data.noise[UNIFORM].shape[:2]
        with torch.no_grad():
            parts = [
                _uniform(data.noise[UNIFORM]),
                _of_policy(models.policy, data.observations, data.noise[MORE_NEW]),
                _of_policy(models.policy, data.next_observations, data.noise[MORE_NEXT]),
            ]
            actions = torch.cat([actions for actions, _ in parts], dim=1)
            log_densities = torch.cat([log_density for _, log_density in parts], dim=1)
        values: Tensor = models["critics"](_repeated(data.observations, 3 * count), actions.flatten(0, 1))
        return (values.view(2, rows, 3 * count) - log_densities).logsumexp(dim=2) - math.log(3 * count)

    def _policy_loss(self, models: Models, data: Transitions) -> tuple[Tensor, ...]:
        actions, log_probs = drawn(models.policy, data.observations, data.noise[NEW][:, 0])
        values = models["critics"](data.observations, actions).amin(dim=0)
        loss = (temperature_of(models).detach() * log_probs - values).mean()
        return loss, -log_probs.mean(), values.mean(), loss.detach()

    def _temperature_loss(self, models: Models, data: Transitions) -> tuple[Tensor, ...]:
        with torch.no_grad():
            _, log_probs = drawn(models.policy, data.observations, data.noise[NEW][:, 0])
        target = self._settings.target_entropy
        target = -float(num_dimensions(data)) if target is None else target
        log = cast(Temperature, models["temperature"]).log
        loss = -(log * (log_probs + target)).mean()
        return loss, log.exp(), log_probs.mean(), loss.detach()


class CQLAlgorithm:
    """Gradient steps on minibatches of a dataset."""

    Settings: type = CQL
    Targets = NoTargets
    differentiates_at_behaviour = False

    def __init__(self, settings: ConservativeSettings, run: RunFacts) -> None:
        self._settings = settings
        self._run = run

    def check(self) -> None:
        check_shards_of_minibatch(self._settings, self._run)

    def models(self, interface: Interface, network: Network) -> dict[str, Model]:
        check_critics_fit("cql", interface, network)
        return {
            "critics": Model(lambda: Critics(interface, network)),
            "target_critics": Model(lambda: Critics(interface, network), optimizer=None, copies="critics"),
            "temperature": Model(lambda: Temperature(self._settings.initial_temperature)),
        }

    def objective(self, update: Update, batch: Batch, targets: NoTargets) -> CQLObjective:
        assert batch.dataset is not None
        return CQLObjective(self._settings, self._run.seed, update.number, batch.dataset)

    def improve(self, update: Update, draft: Draft, batch: Batch) -> Metrics:
        settings, statistics = self._settings, Statistics()
        objective = self.objective(update, batch, NoTargets())
        for step in range(self._run.unroll_steps):
            objective.epoch = step
            critics = draft.differentiate(objective, draft.models, objective.everything, of="critics")
            draft.step(settings.critic_learning_rate)
            policy = draft.differentiate(objective, draft.models, objective.everything, of="policy")
            draft.step(settings.learning_rate)
            temperature = draft.differentiate(objective, draft.models, objective.everything, of="temperature")
            draft.step(settings.temperature_learning_rate)
            draft.follow("target_critics", settings.follow_rate)
            _record(statistics, critics, policy, temperature)
        return statistics.means()


def num_dimensions(data: Transitions) -> int:
    """How many dimensions an action has."""
    return data.actions.shape[1]


def _uniform(noise: Tensor) -> tuple[Tensor, Tensor]:
    """Uniform actions in [-1, 1] from normal noise `[rows, count, dimensions]`, before the tangent, and their
    log-densities `[rows, count]`."""
    share = (2 * torch.special.ndtr(noise) - 1).clamp(-SATURATED, SATURATED)
    return share.atanh(), torch.full(noise.shape[:2], noise.shape[2] * LOG_UNIFORM_DENSITY, device=noise.device)


def _of_policy(policy: Policy, observations: dict[str, Tensor], noise: Tensor) -> tuple[Tensor, Tensor]:
    """Several actions of the policy for each observation, as above."""
    actions, log_probs = drawn(policy, _repeated(observations, noise.shape[1]), noise.flatten(0, 1))
    return actions.view(noise.shape), log_probs.view(noise.shape[:2])


def _repeated(observations: dict[str, Tensor], times: int) -> dict[str, Tensor]:
    return {name: x.repeat_interleave(times, dim=0) for name, x in observations.items()}


def _record(statistics: Statistics, critics: Tensor, policy: Tensor, temperature: Tensor) -> None:
    statistics.add("train/critic_loss", critics[0])
    statistics.add("train/q_value", critics[1])
    statistics.add("train/q_excess", critics[3])
    statistics.add("train/policy_loss", policy[0])
    statistics.add("train/entropy", policy[1])
    statistics.add("train/temperature", temperature[1])
