"""DQN and TD3 again, plainly, and what all plain implementations have in common.

Gymnasium's environments, torch's layers and optimizer, transitions in a list. They share with htsrl the initial weights
and the random numbers, which are functions of seed and place. Parameters of a network lie in one vector, each on a
cache line of its own, for torch's optimizer has other last bits at odd ends.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import huber_loss

from htsrl import Experiment
from htsrl.algorithms.models import built_model, declared_models
from htsrl.checkpoint.files import newest_valid
from htsrl.dataflow.parameters import FlatLayout
from htsrl.policies.policy import policy_for
from htsrl.runs.folder import RunFolder
from htsrl.seeding import ActionNoise, Purpose, replay_draws, reset_seed
from htsrl.spaces import Interface

PER_LINE = 16


def mlp(width: int, num_outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, num_outputs))


class Flat:
    """Networks whose parameters are parts of one vector, and torch's Adam over it."""

    def __init__(self, networks: Iterable[nn.Module], initial: Iterable[Tensor], learning_rate: float) -> None:
        self.parameters = [parameter for network in networks for parameter in network.parameters()]
        sizes = [-(-parameter.numel() // PER_LINE) * PER_LINE for parameter in self.parameters]
        self.vector, gradient = torch.zeros(sum(sizes)), torch.zeros(sum(sizes))
        offset = 0
        for parameter, value, size in zip(self.parameters, initial, sizes, strict=True):
            part = slice(offset, offset + parameter.numel())
            self.vector[part] = value.detach().flatten()
            parameter.data = self.vector[part].view(parameter.shape)
            parameter.grad = gradient[part].view(parameter.shape)
            offset += size
        self.vector.grad = gradient
        self.adam = torch.optim.Adam([self.vector], learning_rate, eps=1e-8, fused=True)

    def descend(self, loss: Tensor, max_norm: float | None = None) -> None:
        gradient = self.vector.grad
        assert gradient is not None
        gradient.zero_()
        torch.autograd.backward(loss, inputs=self.parameters)
        if max_norm is not None:
            gradient.mul_((max_norm / (torch.linalg.vector_norm(gradient) + 1e-6)).clamp(max=1.0))
        self.adam.step()

    def follow(self, other: Flat, rate: float) -> None:
        self.vector.lerp_(other.vector, rate)


LOG_HALF_RANGE = torch.tensor(2.0).log()
"""Of actions from -2 to 2."""


def log_density(drawn: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Of actions from -2 to 2 that were drawn from a normal distribution, and then squashed by the tangent."""
    errors = (drawn - mean) * (-log_std).exp()
    log_normal = (errors * errors * -0.5 - log_std - 0.5 * math.log(2 * math.pi)).sum(dim=1)
    distance = drawn.abs()
    log_slope = 2 * (math.log(2) - distance - torch.log1p(torch.exp(-2 * distance)))  # log(1 - tanh^2)
    return log_normal - (LOG_HALF_RANGE + log_slope).sum(dim=1)


class Actor(nn.Module):
    """A mean and the logarithm of a deviation for what is seen."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = mlp(3, 2)

    def forward(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.layers(seen).chunk(2, dim=1)
        return mean, log_std.clamp(-20, 2)

    def draw(self, seen: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions before the tangent, and their log-densities behind it, from -1 to 1."""
        mean, log_std = self(seen)
        drawn = mean + log_std.exp() * noise
        return drawn, log_density(drawn, mean, log_std) + LOG_HALF_RANGE


def action_values(critics: list[nn.Sequential], seen: Tensor, actions: Tensor) -> Tensor:
    both = torch.cat([seen, actions.tanh()], dim=1)
    return torch.stack([critic(both).squeeze(1) for critic in critics])


def scalar(initial: float, learning_rate: float) -> tuple[nn.ParameterList, Flat]:
    """A number that is learned, by its logarithm."""
    module = nn.ParameterList([torch.tensor(math.log(initial))])
    return module, Flat([module], list(module), learning_rate)


def twins(first: Any, learning_rate: float) -> tuple[list[nn.Sequential], Flat]:
    """Two critics of four numbers each, with the parameters of htsrl's."""
    networks = [mlp(4, 1) for _ in range(2)]
    parts = [x for i in range(2) for x in (*first.hidden[i].parameters(), *first.heads[i].parameters())]
    return networks, Flat(networks, parts, learning_rate)


def parameters_of(networks: list[nn.Sequential]) -> list[Tensor]:
    """Of two critics, in the order of htsrl's: its heads come after all other layers."""
    return [
        x.detach() for part in (slice(4), slice(4, 6)) for network in networks for x in [*network.parameters()][part]
    ]


def checkpointed(run_dir: Path, model: str, like: nn.Module) -> list[Tensor]:
    """A model's parameters in the newest checkpoint of a run."""
    found = newest_valid(RunFolder.existing(run_dir).checkpoints_dir, print)
    assert found is not None
    name = f"version {found[1].document['version']}/model {model}/parameter_slots"
    return FlatLayout.of(like).views(torch.from_numpy(found[1].arrays[name][0]), like)


class Plain(ABC):
    """What both have in common: environments, memory, minibatches."""

    def __init__(self, experiment: Experiment, noise: ActionNoise) -> None:
        self.settings, self.seed, self.noise = experiment.algorithm, experiment.seed, noise
        self.num_envs, self.num_steps = experiment.num_envs, experiment.interval_steps
        self.envs: list[Any] = [
            gymnasium.make(str(experiment.env), **experiment.env_args) for _ in range(self.num_envs)
        ]
        self.interface = Interface(self.envs[0].observation_space, self.envs[0].action_space)
        self.initial: Any = policy_for(experiment, self.interface)
        self.models = declared_models(experiment, self.interface)
        self.memory: list[list[tuple[Any, ...]]] = []  # a row of all environments for each step
        self.episodes = [0] * self.num_envs
        self.seen = [env.reset(seed=reset_seed(self.seed, b, 0))[0] for b, env in enumerate(self.envs)]
        self.gradient_steps = 0

    def built(self, name: str) -> Any:
        return built_model(self.models[name], name, self.seed)

    def update(self, number: int) -> None:
        """One rollout, and the gradient steps for it."""
        for _ in range(self.num_steps):
            step = len(self.memory)
            noise = [self.noise.draw(self.seed, b, step, 1) for b in range(self.num_envs)]
            actions = self.act(torch.from_numpy(np.stack(self.seen)), torch.from_numpy(np.concatenate(noise)))
            self.memory.append([self._step_env(b, actions[b]) for b in range(self.num_envs)])
        if len(self.memory) * self.num_envs < self.settings.learning_starts:
            return
        num_new = self.num_envs * self.num_steps
        before, after = (int(self.settings.update_to_data * n * num_new) for n in (number, number + 1))
        for g in range(after - before):
            self.gradient_steps = before + g + 1
            self.learn(number, g, *self._minibatch(number, g))

    @abstractmethod
    def act(self, seen: Tensor, noise: Tensor) -> Any:
        """What to do in each environment, as it is stored."""

    @abstractmethod
    def to_env(self, action: Any) -> Any: ...

    @abstractmethod
    def learn(self, number: int, g: int, *minibatch: Tensor) -> None: ...

    def _step_env(self, b: int, action: Any) -> tuple[Any, ...]:
        following, reward, terminated, truncated, _ = self.envs[b].step(self.to_env(action))
        transition = self.seen[b], action, np.float32(reward), following, terminated, terminated or truncated
        self.seen[b] = following
        if terminated or truncated:
            self.episodes[b] += 1
            self.seen[b] = self.envs[b].reset(seed=reset_seed(self.seed, b, self.episodes[b]))[0]
        return transition

    def _minibatch(self, number: int, g: int) -> list[Tensor]:
        held = min(len(self.memory), self.settings.replay_capacity // self.num_envs)
        drawn = replay_draws(self.seed, number, g, held * self.num_envs, self.settings.minibatch_size)
        places = (drawn + (len(self.memory) - held) * self.num_envs).tolist()
        rows = [self._n_steps(*divmod(place, self.num_envs)) for place in places]
        return [torch.from_numpy(np.array(column)) for column in zip(*rows, strict=True)]

    def _n_steps(self, t: int, b: int) -> tuple[Any, ...]:
        reward: Any = np.float32(0)
        worth: Any = np.float32(1)
        for row in self.memory[t : t + self.settings.n_step]:
            _, _, one, following, terminated, over = row[b]
            reward, worth = reward + worth * one, worth * np.float32(self.settings.discount)
            if over:
                break
        first = self.memory[t][b]
        return first[0], first[1], reward, following, np.float32(0) if terminated else worth


class TwoHeads(nn.Module):
    """An output for each of two actions, and a value."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU())
        self.actions, self.value = nn.Linear(16, 2), nn.Linear(16, 1)

    def forward(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(seen)
        return self.actions(features), self.value(features)


class PlainDqn(Plain):
    """Learns CartPole: four numbers are seen, one of two things is done."""

    def __init__(self, experiment: Experiment) -> None:
        super().__init__(experiment, ActionNoise(gumbel=2))
        policy = self.initial
        parts = [x for part in (policy.encoder, policy.action_head, policy.value_head) for x in part.parameters()]
        self.network, self.target_network = TwoHeads(), TwoHeads()
        self.online = Flat([self.network], parts, self.settings.learning_rate)
        self.target = Flat([self.target_network], parts, 0.0)
        self.epsilon = self.settings.initial_epsilon

    def values(self, network: nn.Module, seen: Tensor) -> Tensor:
        advantages, value = network(seen)
        values: Tensor = value + advantages - advantages.mean(dim=1, keepdim=True)
        return values if self.settings.duelling else advantages

    def act(self, seen: Tensor, noise: Tensor) -> Any:
        with torch.no_grad():
            best = self.network(seen)[0].argmax(dim=1)
        probabilities = torch.full((self.num_envs, 2), self.epsilon / 2)
        probabilities[torch.arange(self.num_envs), best] += 1 - self.epsilon
        return (probabilities.log() + noise).argmax(dim=1).tolist()

    def to_env(self, action: Any) -> Any:
        return action

    def update(self, number: int) -> None:
        super().update(number)
        progress = min((number + 1) * self.num_envs * self.num_steps / self.settings.exploration_steps, 1)
        first, last = self.settings.initial_epsilon, self.settings.final_epsilon
        self.epsilon = first + progress * (last - first)

    def learn(self, number: int, g: int, *minibatch: Tensor) -> None:
        seen, actions, rewards, following, worth = minibatch
        rows = torch.arange(len(actions))
        with torch.no_grad():
            chooser = self.network if self.settings.double else self.target_network
            best = self.values(chooser, following).argmax(dim=1)
            goals = rewards + worth * self.values(self.target_network, following)[rows, best]
        errors = huber_loss(self.values(self.network, seen)[rows, actions], goals, reduction="none")
        self.online.descend(errors.mean(), self.settings.max_gradient_norm)
        if self.gradient_steps % self.settings.target_period == 0:
            self.target.follow(self.online, self.settings.follow_rate)


class PlainTd3(Plain):
    """Learns Pendulum: three numbers are seen, one is done, from -2 to 2."""

    def __init__(self, experiment: Experiment) -> None:
        super().__init__(experiment, ActionNoise(normal=1))
        rate = self.settings.learning_rate
        parts = [*self.initial.encoder.parameters(), *self.initial.action_head.parameters()]
        self.actor, self.target_actor = mlp(3, 1), mlp(3, 1)
        self.of_actor, self.of_target_actor = Flat([self.actor], parts, rate), Flat([self.target_actor], parts, 0.0)
        (self.critics, self.of_critics), (self.targets, self.of_targets) = (
            twins(self.built("critics"), of_rate) for of_rate in (rate, 0.0)
        )
        self.deviation = self.settings.initial_exploration_noise

    def intended(self, actor: nn.Module, seen: Tensor) -> Tensor:
        actions: Tensor = 2 * actor(seen).tanh()
        return actions

    def act(self, seen: Tensor, noise: Tensor) -> Any:
        with torch.no_grad():
            return (self.intended(self.actor, seen) + torch.tensor(2 * self.deviation).log().exp() * noise).numpy()

    def to_env(self, action: Any) -> Any:
        return np.clip(action, -2, 2)

    def update(self, number: int) -> None:
        super().update(number)
        if len(self.memory) * self.num_envs >= self.settings.learning_starts:
            self.deviation = self.settings.exploration_noise

    def learn(self, number: int, g: int, *minibatch: Tensor) -> None:
        seen, actions, rewards, following, worth = minibatch
        settings, size = self.settings, self.settings.minibatch_size
        noise = torch.from_numpy(self.noise.draw(self.seed, g, number * size, size, Purpose.LEARNING))
        with torch.no_grad():
            smoothing = (noise * settings.target_noise).clamp(-settings.target_noise_clip, settings.target_noise_clip)
            next_actions = self.intended(self.target_actor, following) + smoothing * 2
            goals = rewards + worth * torch.minimum(*(self.value(x, following, next_actions) for x in self.targets))
        values = torch.stack([self.value(critic, seen, actions) for critic in self.critics])
        self.of_critics.descend((values - goals).square().mean(dim=1).sum())
        if self.gradient_steps % settings.policy_delay == 0:
            self.of_actor.descend(-self.value(self.critics[0], seen, self.intended(self.actor, seen)).mean())
            self.of_targets.follow(self.of_critics, settings.follow_rate)
            self.of_target_actor.follow(self.of_actor, settings.follow_rate)

    @staticmethod
    def value(critic: nn.Module, seen: Tensor, actions: Tensor) -> Tensor:
        values: Tensor = critic(torch.cat([seen, (actions / 2).clamp(-1, 1)], dim=1)).squeeze(1)
        return values
