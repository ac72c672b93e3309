"""Soft actor-critic with a learned temperature (https://arxiv.org/abs/1812.05905).

    y        = r + gamma (min Q'(s', a') - alpha log pi(a' | s')),   a' ~ pi(s')
    critics  minimise (Q(s, a) - y)^2, each of the two
    policy   minimises alpha log pi(a | s) - min Q(s, a),            a ~ pi(s), reparametrised
    alpha    minimises -log alpha (log pi(a | s) + target entropy)
    Q'       moves towards Q by tau

Actions are as the policy drew them, before the hyperbolic tangent; critics see them behind it, in [-1, 1]. Data of any
age are as good as new ones, so the lag of `hts` needs no correction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from htsrl.algorithms.algorithm import Metrics, RunFacts, Update
from htsrl.algorithms.batch import Batch
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.models import Model, Models
from htsrl.algorithms.sequences import Chosen, Rows
from htsrl.algorithms.statistics import Statistics
from htsrl.config import SAC, Network
from htsrl.errors import ConfigError
from htsrl.policies.encoders import Encoder, encoder_for
from htsrl.policies.layers import Dense, Mlp
from htsrl.policies.policy import Policy
from htsrl.seeding import ActionNoise, Purpose
from htsrl.sources.replay import ReplayBuffer
from htsrl.spaces import Interface


class SACTargets(NamedTuple):
    """Nothing: whoever takes a share of a gradient draws its minibatch from the replay buffer."""


class Critics(nn.Module):
    """Two action values."""

    def __init__(self, interface: Interface, network: Network) -> None:
        super().__init__()
        self.encoder: Encoder = encoder_for(interface.observations, Network(hidden_sizes=()))
        width = self.encoder.num_features + interface.actions.num_continuous
        self.hidden = nn.ModuleList(Mlp(width, network.hidden_sizes, network.activation) for _ in range(2))
        self.heads = nn.ModuleList(Dense(cast(Mlp, mlp).num_features, 1) for mlp in self.hidden)

    def forward(self, observations: dict[str, Tensor], actions: Tensor) -> Tensor:
        """`[2, rows]`, of actions as the policy draws them."""
        seen = torch.cat([self.encoder.side_by_side(observations), actions.tanh()], dim=1)
        return torch.stack([head(mlp(seen)).squeeze(-1) for mlp, head in zip(self.hidden, self.heads, strict=True)])


class Temperature(nn.Module):
    """Alpha, by its logarithm."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor(math.log(initial)))


class Minibatch(NamedTuple):
    """Transitions drawn from the replay buffer, and noise for actions at both ends of them."""

    observations: dict[str, Tensor]
    actions: Tensor
    rewards: Tensor
    next_observations: dict[str, Tensor]
    discounts: Tensor
    noise: Tensor
    next_noise: Tensor

    def rows(self, chosen: Chosen) -> Minibatch:
        def of(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            return {name: x[chosen] for name, x in tensors.items()}

        observations, following = of(self.observations), of(self.next_observations)
        plain = self.actions[chosen], self.rewards[chosen], self.discounts[chosen]
        noise = self.noise[chosen], self.next_noise[chosen]
        return Minibatch(observations, plain[0], plain[1], following, plain[2], *noise)


class SACObjective:
    """The losses of critics, policy and temperature; `epoch` is the gradient step within the update."""

    num_parts = 3
    epoch = 0

    def __init__(self, settings: SAC, seed: int, update: int, replay: ReplayBuffer) -> None:
        self._settings = settings
        self._seed = seed
        self._update = update
        self._replay = replay
        self._drawn: tuple[int, Minibatch] | None = None

    @property
    def everything(self) -> slice:
        return slice(0, self._settings.minibatch_size)

    def learned_rows(self, chosen: Chosen) -> Rows:
        return chosen

    def loss_of(self, model: str, models: Models, chosen: Chosen) -> tuple[Tensor, ...]:
        data = self._minibatch(models.policy).rows(chosen)
        if model == "critics":
            return self._critics_loss(models, data)
        if model == "temperature":
            return self._temperature_loss(models, data)
        return self._policy_loss(models, data)

    def _critics_loss(self, models: Models, data: Minibatch) -> tuple[Tensor, ...]:
        with torch.no_grad():
            actions, log_probs = drawn(models.policy, data.next_observations, data.next_noise)
            following = models["target_critics"](scaled(models.policy, data.next_observations), actions).amin(dim=0)
            targets = data.rewards + data.discounts * (following - temperature_of(models) * log_probs)
        values = models["critics"](scaled(models.policy, data.observations), data.actions)
        loss = (values - targets).square().mean(dim=1).sum()
        return loss, values.mean(), targets.mean()

    def _policy_loss(self, models: Models, data: Minibatch) -> tuple[Tensor, ...]:
        actions, log_probs = drawn(models.policy, data.observations, data.noise)
        values = models["critics"](scaled(models.policy, data.observations), actions).amin(dim=0)
        loss = (temperature_of(models).detach() * log_probs - values).mean()
        return loss, -log_probs.mean(), values.mean()

    def _temperature_loss(self, models: Models, data: Minibatch) -> tuple[Tensor, ...]:
        with torch.no_grad():
            _, log_probs = drawn(models.policy, data.observations, data.noise)
        target = self._settings.target_entropy
        target = -float(data.noise.shape[1]) if target is None else target
        log = cast(Temperature, models["temperature"]).log
        return -(log * (log_probs + target)).mean(), log.exp(), log_probs.mean()

    def _minibatch(self, policy: Policy) -> Minibatch:
        """A function of seed, update and gradient step, so everybody draws the same."""
        if self._drawn is None or self._drawn[0] != self.epoch:
            self._drawn = self.epoch, self._draw(policy.interface.actions.noise, policy.action_head.weight.device)
        return self._drawn[1]

    def _draw(self, noise: ActionNoise, device: torch.device) -> Minibatch:
        settings, step = self._settings, (self._seed, self._update, self.epoch)
        size = settings.minibatch_size
        found = self._replay.sample(*step, size, settings.discount, settings.n_step)

        def tensors(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
            return {name: torch.from_numpy(x).to(device) for name, x in arrays.items()}

        both = [
            torch.from_numpy(noise.draw(self._seed, 2 * self.epoch + end, self._update * size, size, Purpose.LEARNING))
            for end in range(2)
        ]
        plain = [torch.from_numpy(x).to(device) for x in (found.actions, found.rewards, found.discounts)]
        return Minibatch(
            tensors(found.observations),
            plain[0],
            plain[1],
            tensors(found.next_observations),
            plain[2],
            *(x.to(device) for x in both),
        )


class SACAlgorithm:
    """Gradient steps on minibatches of the replay buffer, so many for every step of an environment."""

    Settings = SAC
    Targets = SACTargets
    differentiates_at_behaviour = False

    def __init__(self, settings: SAC, run: RunFacts) -> None:
        self._settings = settings
        self._run = run

    def check(self) -> None:
        settings, shards = self._settings, self._run.gradient_shards
        if self._run.mixes_versions:
            raise ConfigError("SAC's replay buffer follows every environment by interval; use --schedule hts or sync")
        if shards > settings.minibatch_size:
            raise ConfigError(f"gradient_shards={shards} is more than minibatch_size={settings.minibatch_size}")

    def models(self, interface: Interface, network: Network) -> dict[str, Model]:
        _check_fits(interface, network)
        return {
            "critics": Model(lambda: Critics(interface, network)),
            "target_critics": Model(lambda: Critics(interface, network), optimizer=None, copies="critics"),
            "temperature": Model(lambda: Temperature(self._settings.initial_temperature)),
        }

    def objective(self, update: Update, batch: Batch, targets: SACTargets) -> SACObjective:
        assert batch.replay is not None
        return SACObjective(self._settings, self._run.seed, update.number, batch.replay)

    def improve(self, update: Update, draft: Draft, batch: Batch) -> Metrics:
        settings, num_new = self._settings, batch.log_probs.numel()
        statistics = Statistics()
        if (update.number + 1) * num_new < settings.learning_starts:
            return {}
        objective = self.objective(update, batch, SACTargets())
        for step in range(num_gradient_steps(settings.update_to_data, update.number, num_new)):
            objective.epoch = step
            critics = draft.differentiate(objective, draft.models, objective.everything, of="critics")
            draft.step(settings.learning_rate)
            policy = draft.differentiate(objective, draft.models, objective.everything, of="policy")
            draft.step(settings.learning_rate)
            temperature = draft.differentiate(objective, draft.models, objective.everything, of="temperature")
            draft.step(settings.temperature_learning_rate)
            draft.follow("target_critics", settings.follow_rate)
            _record(statistics, critics, policy, temperature)
        return statistics.means()


def num_gradient_steps(update_to_data: float, update: int, num_new: int) -> int:
    """Of an update with so many new transitions: all up to it together are the whole number below their share."""
    before, after = (math.floor(update_to_data * number * num_new) for number in (update, update + 1))
    return after - before


def drawn(policy: Policy, observations: dict[str, Tensor], noise: Tensor) -> tuple[Tensor, Tensor]:
    """Actions, differentiable, and the logarithms of their densities as actions in [-1, 1]."""
    distribution, _ = policy(observations)
    actions = distribution.sample(noise)
    half_ranges = torch.from_numpy(policy.interface.actions.half_ranges).to(actions)
    return actions, distribution.log_prob(actions) + half_ranges.log().sum()


def scaled(policy: Policy, observations: dict[str, Tensor]) -> dict[str, Tensor]:
    """As the policy sees them."""
    scales = policy.observation_scales
    return observations if scales is None else dict(scales(observations))


def temperature_of(models: Models) -> Tensor:
    return cast(Temperature, models["temperature"]).log.exp()


def _check_fits(interface: Interface, network: Network) -> None:
    actions = interface.actions
    if actions.categories or not actions.squashed.all():
        raise ConfigError(f"SAC needs a Box of actions with two bounds each, not {interface.action_space}; use PPO")
    if network.recurrent != "none" or network.policy is not None:
        raise ConfigError(
            f"SAC learns from single transitions with networks of its own; recurrent={network.recurrent} and "
            f"policy={network.policy} do not go with it: leave them out, or use PPO"
        )
    if any(leaf.is_image for leaf in interface.observations.values()):
        raise ConfigError("SAC's critics see vectors, and there are images among the observations; use PPO")


def _record(statistics: Statistics, critics: Tensor, policy: Tensor, temperature: Tensor) -> None:
    statistics.add("train/critic_loss", critics[0])
    statistics.add("train/q_value", critics[1])
    statistics.add("train/policy_loss", policy[0])
    statistics.add("train/entropy", policy[1])
    statistics.add("train/temperature", temperature[1])
