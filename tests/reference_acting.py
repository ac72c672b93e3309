"""The half of the reference that acts: environments stepped side by side, and the network of one version."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from htsrl.config import Experiment
from htsrl.seeding import ActionNoise, network_seed, reset_seed

Float32 = NDArray[np.float32]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Rollout:
    """An interval `[T, B, ...]` of all environments, made by one version."""

    obs: Float32
    actions: NDArray[Any]
    log_probs: Float32
    values: Float32
    next_values: Float32
    """Of the observation that truly followed, before any reset; anything where there is no future."""
    rewards: Float32
    terminated: Bools
    truncated: Bools


class Worlds:
    """The environments, from one interval to the next."""

    def __init__(self, experiment: Experiment) -> None:
        env_id, num_envs = experiment.env, experiment.num_envs
        assert isinstance(env_id, str)
        self._envs = [gymnasium.make(env_id, **experiment.env_args) for _ in range(num_envs)]
        self._seed = experiment.seed
        self._episodes = [0] * num_envs
        self._obs = np.stack([self._reset(b) for b in range(num_envs)])
        self._step = 0
        self.num_inputs = self._obs[0].size
        self._actions = actions = self._envs[0].action_space
        self.is_discrete = isinstance(actions, spaces.Discrete)
        self.num_outputs = int(actions.n) if isinstance(actions, spaces.Discrete) else math.prod(actions.shape or ())
        self._noise = ActionNoise(gumbel=self.num_outputs) if self.is_discrete else ActionNoise(normal=self.num_outputs)

    @torch.no_grad()
    def roll_out(self, network: ActorCritic, num_steps: int) -> Rollout:
        steps: list[tuple[NDArray[Any], ...]] = []
        for _ in range(num_steps):
            acted = network.act(self._obs, self._noise_of_this_step())
            following, rewards, terminated, truncated = self._take(acted)
            steps.append((self._obs, acted, network.final_value(following), rewards, terminated, truncated))
            ended = terminated | truncated
            self._obs = np.stack([self._reset(b) if ended[b] else following[b] for b in range(len(ended))])
        obs, actions, final_values, rewards, terminated, truncated = (np.stack(x) for x in zip(*steps, strict=True))
        rows = torch.from_numpy(obs).flatten(0, 1)
        log_probs, _ = network.assess(rows, torch.from_numpy(actions).flatten(0, 1))
        values = network.value(rows).numpy().reshape(rewards.shape)
        last_values = network.value(torch.from_numpy(self._obs)).numpy()
        next_values = np.where(truncated, final_values, np.concatenate([values[1:], last_values[None]]))
        log_probs_TB = log_probs.numpy().reshape(rewards.shape)
        return Rollout(obs, actions, log_probs_TB, values, next_values, rewards, terminated, truncated)

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _noise_of_this_step(self) -> Float32:
        rows = [self._noise.draw(self._seed, b, self._step, 1) for b in range(len(self._envs))]
        self._step += 1
        return np.concatenate(rows)

    def _take(self, actions: NDArray[Any]) -> tuple[Float32, Float32, Bools, Bools]:
        if isinstance(self._actions, spaces.Box):
            actions = np.clip(actions, self._actions.low, self._actions.high)
        results = [env.step(action) for env, action in zip(self._envs, actions, strict=True)]
        obs, rewards, terminated, truncated, _ = zip(*results, strict=True)
        return np.stack(obs), np.array(rewards, np.float32), np.array(terminated), np.array(truncated)

    def _reset(self, b: int) -> Float32:
        obs, _ = self._envs[b].reset(seed=reset_seed(self._seed, b, self._episodes[b]))
        self._episodes[b] += 1
        return np.asarray(obs, np.float32)


class ActorCritic(nn.Module):
    """Two towers of tanh layers; a softmax over actions, or normal distributions with a free deviation."""

    def __init__(self, num_inputs: int, num_outputs: int, is_discrete: bool, hidden: Sequence[int]) -> None:
        super().__init__()
        self._is_discrete = is_discrete
        if not is_discrete:
            self.log_std = nn.Parameter(torch.zeros(num_outputs))
        widths = [num_inputs, *hidden]
        self.actor, self.critic = tower(widths), tower(widths)
        self.actor_head = layer(widths[-1], num_outputs, gain=0.01)
        self.critic_head = layer(widths[-1], 1, gain=1.0)

    def value(self, obs: Tensor) -> Tensor:
        value: Tensor = self.critic_head(self.critic(obs))
        return value[:, 0]

    def act(self, obs: Float32, noise: Float32) -> NDArray[Any]:
        outputs = in_numpy(nn.Sequential(*self.actor, self.actor_head), obs)
        if self._is_discrete:
            return np.asarray((outputs + noise).argmax(1))
        return np.asarray(outputs + np.exp(self.log_std.numpy()) * noise)

    def final_value(self, obs: Float32) -> Float32:
        return in_numpy(nn.Sequential(*self.critic, self.critic_head), obs)[:, 0]

    def assess(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Logarithms of the probabilities of given actions, and entropies."""
        outputs = self.actor_head(self.actor(obs))
        if self._is_discrete:
            log_probs = torch.log_softmax(outputs, 1)
            return log_probs.gather(1, actions[:, None])[:, 0], -(log_probs.exp() * log_probs).sum(1)
        z = (actions - outputs) * torch.exp(-self.log_std)
        log_prob = (-0.5 * z**2 - self.log_std - 0.5 * math.log(2 * math.pi)).sum(1)
        return log_prob, (self.log_std + 0.5 + 0.5 * math.log(2 * math.pi)).sum().expand(len(outputs))


def in_numpy(layers: nn.Sequential, x: Float32) -> Float32:
    for module in layers:
        x = x.dot(module.weight.numpy().T) + module.bias.numpy() if isinstance(module, nn.Linear) else np.tanh(x)
    return x


def initial_network(experiment: Experiment, worlds: Worlds) -> ActorCritic:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(network_seed(experiment.seed))
        return ActorCritic(worlds.num_inputs, worlds.num_outputs, worlds.is_discrete, experiment.network.hidden_sizes)


def tower(widths: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [layer(before, after, gain=math.sqrt(2)), nn.Tanh()]
    return nn.Sequential(*layers)


def layer(num_inputs: int, num_outputs: int, gain: float) -> nn.Linear:
    linear = nn.Linear(num_inputs, num_outputs)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear
