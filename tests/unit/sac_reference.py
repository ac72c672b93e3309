"""SAC again, plainly: Gymnasium's environments, torch's layers and optimizer, transitions in a list.

It shares with htsrl the initial weights and the random numbers, which are functions of seed and place.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from htsrl import Experiment
from htsrl.algorithms.models import built_model, declared_models
from htsrl.policies.policy import policy_for
from htsrl.seeding import ActionNoise, Purpose, replay_draws, reset_seed
from htsrl.spaces import Interface

NOISE = ActionNoise(normal=1)


def mlp(width: int, num_outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, num_outputs))


class PlainSac:
    """Learns Pendulum: three numbers are seen, one is done, from -2 to 2."""

    def __init__(self, experiment: Experiment) -> None:
        self.settings, self.seed = experiment.algorithm, experiment.seed
        self.num_envs, self.num_steps = experiment.num_envs, experiment.interval_steps
        self.envs: list[Any] = [
            gymnasium.make(str(experiment.env), **experiment.env_args) for _ in range(self.num_envs)
        ]
        interface = Interface(self.envs[0].observation_space, self.envs[0].action_space, squashes=True)
        initial = policy_for(experiment, interface)
        self.actor = mlp(3, 2)
        _fill(self.actor, [*initial.encoder.parameters(), *initial.action_head.parameters()])
        first = built_model(declared_models(experiment, interface)["critics"], "critics", self.seed)
        self.critics, self.targets = [mlp(4, 1) for _ in range(2)], [mlp(4, 1) for _ in range(2)]
        for i, (critic, target) in enumerate(zip(self.critics, self.targets, strict=True)):
            parts: Any = first
            for network in (critic, target):
                _fill(network, [*parts.hidden[i].parameters(), *parts.heads[i].parameters()])
        self.log_alpha = torch.tensor(math.log(self.settings.initial_temperature), requires_grad=True)
        both = [parameter for critic in self.critics for parameter in critic.parameters()]
        self.of_critics = torch.optim.Adam(both, self.settings.learning_rate)
        self.of_actor = torch.optim.Adam(self.actor.parameters(), self.settings.learning_rate)
        self.of_alpha = torch.optim.Adam([self.log_alpha], self.settings.temperature_learning_rate)
        self.memory: list[list[tuple[Any, ...]]] = []  # a row of all environments for each step
        self.episodes = [0] * self.num_envs
        self.seen = [env.reset(seed=reset_seed(self.seed, b, 0))[0] for b, env in enumerate(self.envs)]
        self.step = 0

    def update(self, number: int) -> None:
        for _ in range(self.num_steps):
            self.memory.append([self._step_env(b) for b in range(self.num_envs)])
            self.step += 1
        for g in range(round(self.settings.update_to_data * self.num_envs * self.num_steps)):
            self._gradient_step(number, g)

    def _step_env(self, b: int) -> tuple[Any, ...]:
        noise = torch.from_numpy(NOISE.draw(self.seed, b, self.step, 1))
        with torch.no_grad():
            drawn, _ = self._draw(torch.from_numpy(self.seen[b])[None], noise)
        action = np.asarray(2 * np.tanh(drawn[0].numpy().astype(np.float64)), np.float32)
        following, reward, terminated, truncated, _ = self.envs[b].step(action)
        transition = self.seen[b], drawn[0].numpy(), np.float32(reward), following, terminated, terminated or truncated
        self.seen[b] = following
        if terminated or truncated:
            self.episodes[b] += 1
            self.seen[b] = self.envs[b].reset(seed=reset_seed(self.seed, b, self.episodes[b]))[0]
        return transition

    def _gradient_step(self, number: int, g: int) -> None:
        settings, size = self.settings, self.settings.minibatch_size
        noise, next_noise = (
            torch.from_numpy(NOISE.draw(self.seed, 2 * g + end, number * size, size, Purpose.LEARNING))
            for end in range(2)
        )
        rows = [self._n_steps(*divmod(i, self.num_envs)) for i in self._drawn(number, g)]
        seen, actions, rewards, following, worth = (torch.from_numpy(np.array(x)) for x in zip(*rows, strict=True))
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            next_actions, log_probs = self._draw(following, next_noise)
            value = torch.minimum(*(self._value(target, following, next_actions) for target in self.targets))
            goal = rewards + worth * (value - alpha * log_probs)
        loss = sum(((self._value(critic, seen, actions) - goal) ** 2).mean() for critic in self.critics)
        _descend(self.of_critics, loss)
        mine, log_probs = self._draw(seen, noise)
        value = torch.minimum(*(self._value(critic, seen, mine) for critic in self.critics))
        _descend(self.of_actor, (alpha * log_probs - value).mean())
        with torch.no_grad():
            _, log_probs = self._draw(seen, noise)
        _descend(self.of_alpha, -(self.log_alpha * (log_probs - 1.0)).mean())
        with torch.no_grad():
            for critic, target in zip(self.critics, self.targets, strict=True):
                for source, follower in zip(critic.parameters(), target.parameters(), strict=True):
                    follower.add_(source - follower, alpha=settings.follow_rate)

    def _drawn(self, number: int, g: int) -> list[int]:
        """Places in what is remembered, oldest first."""
        held = min(len(self.memory), self.settings.replay_capacity // self.num_envs)
        drawn = replay_draws(self.seed, number, g, held * self.num_envs, self.settings.minibatch_size)
        return (drawn + (len(self.memory) - held) * self.num_envs).tolist()  # type: ignore[no-any-return]

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

    def _draw(self, seen: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions before the tangent, and the log-densities behind it."""
        mean, log_std = self.actor(seen).chunk(2, dim=1)
        std = log_std.clamp(-20, 2).exp()
        drawn = mean + std * noise
        log_normal = -((drawn - mean) ** 2) / (2 * std**2) - std.log() - 0.5 * math.log(2 * math.pi)
        return drawn, (log_normal - torch.log(1 - drawn.tanh() ** 2 + 1e-12)).sum(dim=1)

    @staticmethod
    def _value(critic: nn.Module, seen: Tensor, actions: Tensor) -> Tensor:
        values: Tensor = critic(torch.cat([seen, actions.tanh()], dim=1)).squeeze(1)
        return values


def _fill(network: nn.Module, parameters: list[nn.Parameter]) -> None:
    with torch.no_grad():
        for mine, theirs in zip(network.parameters(), parameters, strict=True):
            mine.copy_(theirs)


def _descend(optimizer: torch.optim.Optimizer, loss: Any) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
