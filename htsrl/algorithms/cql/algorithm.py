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

import torch
from torch import Tensor

from htsrl.algorithms.algorithm import Metrics, RunFacts, Update
from htsrl.algorithms.batch import Batch
from htsrl.algorithms.cql.settings import CQL, ConservativeSettings
from htsrl.algorithms.critics import Critics
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.max_entropy import Temperature, drawn, policy_loss, record, target_entropy, temperature_loss
from htsrl.algorithms.minibatch_objective import NoTargets, check_shards_of_minibatch
from htsrl.algorithms.models import Model, Models, with_target
from htsrl.algorithms.offline import DatasetObjective, Transitions, check_critics_fit
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
        loss, *others = policy_loss(models, data.observations, data.observations, data.noise[NEW][:, 0])
        return loss, *others, loss.detach()

    def _temperature_loss(self, models: Models, data: Transitions) -> tuple[Tensor, ...]:
        with torch.no_grad():
            _, log_probs = drawn(models.policy, data.observations, data.noise[NEW][:, 0])
        target = target_entropy(self._settings.target_entropy, num_dimensions(data))
        loss, *others = temperature_loss(models, -log_probs, target)
        return loss, *others, loss.detach()


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
            **with_target("critics", lambda: Critics(interface, network)),
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
            critics = objective.minimise("critics", draft, settings.critic_learning_rate)
            policy = objective.minimise("policy", draft, settings.learning_rate)
            temperature = objective.minimise("temperature", draft, settings.temperature_learning_rate)
            draft.follow("target_critics", settings.follow_rate)
            record(statistics, critics, policy, temperature[1])
            statistics.add("train/q_excess", critics[3])
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
