"""BC, CQL and IQL again, plainly: torch's layers and optimizers, a dataset as a list of transitions.

They share with htsrl the initial weights and the random numbers, which are functions of seed and place.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from htsrl import Experiment
from htsrl.algorithms.models import built_model, declared_models
from htsrl.datasets.dataset import Dataset
from htsrl.policies.policy import policy_for
from htsrl.seeding import ActionNoise, Purpose, replay_draws
from htsrl.spaces import Interface

NOISE = ActionNoise(normal=1)
WIDTH = 16


def mlp(width: int, num_outputs: int) -> nn.Sequential:
    layers = nn.Linear(width, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, num_outputs)
    return nn.Sequential(*layers)


class Plain:
    """Three numbers are seen, one is done, from -2 to 2."""

    num_noises = 0

    def __init__(self, experiment: Experiment, dataset: Dataset) -> None:
        self.settings, self.seed, self.steps = experiment.algorithm, experiment.seed, experiment.interval_steps
        interface = Interface(dataset.interface.observation_space, dataset.interface.action_space, squashes=True)
        initial = policy_for(experiment, interface)
        self.actor = mlp(3, 2)
        fill(self.actor, [*initial.encoder.parameters(), *initial.action_head.parameters()])
        self.of_actor = torch.optim.Adam(self.actor.parameters(), self.settings.learning_rate)
        self.transitions = list(transitions_of(dataset))
        models = declared_models(experiment, interface)
        if "critics" in models:
            first: Any = built_model(models["critics"], "critics", self.seed)
            self.critics, self.targets = [mlp(4, 1) for _ in range(2)], [mlp(4, 1) for _ in range(2)]
            for i, pair in enumerate(zip(self.critics, self.targets, strict=True)):
                for network in pair:
                    fill(network, [*first.hidden[i].parameters(), *first.heads[i].parameters()])
            both = [parameter for critic in self.critics for parameter in critic.parameters()]
            rate = getattr(self.settings, "critic_learning_rate", self.settings.learning_rate)
            self.of_critics = torch.optim.Adam(both, rate)
        if "value" in models:
            own: Any = built_model(models["value"], "value", self.seed)
            self.value = mlp(3, 1)
            fill(self.value, [*own.hidden.parameters(), *own.head.parameters()])
            self.of_value = torch.optim.Adam(self.value.parameters(), self.settings.learning_rate)

    def update(self, number: int) -> None:
        for step in range(self.steps):
            size = self.settings.minibatch_size
            drawn = replay_draws(self.seed, number, step, len(self.transitions), size)
            rows = [self.n_steps(int(i)) for i in drawn]
            self.descend(number, step, *(torch.from_numpy(np.array(x)) for x in zip(*rows, strict=True)))

    def n_and_discount(self, i: int) -> tuple[int, float]:
        return getattr(self.settings, "n_step", 1), getattr(self.settings, "discount", 1.0)

    def n_steps(self, i: int) -> tuple[Any, ...]:
        n, discount = self.n_and_discount(i)
        reward: Any = np.float32(0)
        worth: Any = np.float32(1)
        for last in self.transitions[i : i + n]:
            reward, worth = reward + worth * last[2], worth * np.float32(discount)
            if last[5]:
                break
        seen, action = self.transitions[i][:2]
        return seen, action, reward, last[3], np.float32(0) if last[4] else worth

    def descend(self, number: int, step: int, *data: Tensor) -> None:
        raise NotImplementedError

    def noise(self, number: int, step: int, use: int, rows: int) -> Tensor:
        size = self.settings.minibatch_size * rows
        place = self.num_noises * step + use, number * size
        return torch.from_numpy(NOISE.draw(self.seed, *place, size, Purpose.LEARNING))

    def distribution(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.actor(seen).chunk(2, dim=1)
        return mean, log_std.clamp(-20, 2).exp()

    def log_density(self, drawn: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        """Behind the tangent, in [-1, 1]."""
        log_normal = -((drawn - mean) ** 2) / (2 * std**2) - std.log() - 0.5 * math.log(2 * math.pi)
        return (log_normal - torch.log(1 - drawn.tanh() ** 2 + 1e-12)).sum(dim=1)

    def draw(self, seen: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        mean, std = self.distribution(seen)
        drawn = mean + std * noise
        return drawn, self.log_density(drawn, mean, std)

    def smaller(self, networks: list[nn.Sequential], seen: Tensor, actions: Tensor) -> Tensor:
        return torch.minimum(*(action_value(network, seen, actions) for network in networks))

    def follow(self) -> None:
        with torch.no_grad():
            for critic, target in zip(self.critics, self.targets, strict=True):
                for source, follower in zip(critic.parameters(), target.parameters(), strict=True):
                    follower.add_(source - follower, alpha=self.settings.follow_rate)


class PlainBC(Plain):
    def descend(self, number: int, step: int, *data: Tensor) -> None:
        seen, actions, *_ = data
        mean, std = self.distribution(seen)
        minimise(self.of_actor, -self.log_density(actions, mean, std).mean())  # the range's logarithm is a constant


class PlainCQL(Plain):
    num_noises = 5

    def __init__(self, experiment: Experiment, dataset: Dataset) -> None:
        super().__init__(experiment, dataset)
        self.log_alpha = torch.tensor(math.log(self.settings.initial_temperature), requires_grad=True)
        self.of_alpha = torch.optim.Adam([self.log_alpha], self.settings.temperature_learning_rate)

    def descend(self, number: int, step: int, *data: Tensor) -> None:
        seen, actions, rewards, following, worth = data
        settings, alpha = self.settings, self.log_alpha.detach().exp()
        noise, next_noise = self.noise(number, step, 0, 1), self.noise(number, step, 1, 1)
        with torch.no_grad():
            next_actions, _ = self.draw(following, next_noise)
            goal = rewards + worth * self.smaller(self.targets, following, next_actions)
            others = self.other_actions(number, step, seen, following)
        loss = torch.zeros(())
        for critic in self.critics:
            value = action_value(critic, seen, actions)
            weighed = [action_value(critic, seen, a) - log_density for a, log_density in others]
            excess = torch.stack(weighed).exp().mean(dim=0).log() - value
            loss = loss + ((value - goal) ** 2).mean() + settings.conservative_weight * excess.mean()
        minimise(self.of_critics, loss)
        mine, log_probs = self.draw(seen, noise)
        minimise(self.of_actor, (alpha * log_probs - self.smaller(self.critics, seen, mine)).mean())
        with torch.no_grad():
            _, log_probs = self.draw(seen, noise)
        minimise(self.of_alpha, -(self.log_alpha * (log_probs - 1.0)).mean())
        self.follow()

    def other_actions(self, number: int, step: int, seen: Tensor, following: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Actions that the sum over all of them is estimated from, each with the logarithm of its density."""
        count, found = self.settings.sampled_actions, []
        of_policy, of_next, uniform = (
            self.noise(number, step, use, count).view(len(seen), count, 1) for use in (2, 3, 4)
        )
        for k in range(count):
            share = torch.erf(uniform[:, k] / math.sqrt(2.0)).clamp(-1 + 1e-4, 1 - 1e-4)
            found.append((share.atanh(), torch.full((len(seen),), math.log(0.5))))
            found.append(self.draw(seen, of_policy[:, k]))
            found.append(self.draw(following, of_next[:, k]))
        return found


class PlainIQL(Plain):
    def descend(self, number: int, step: int, *data: Tensor) -> None:
        seen, actions, rewards, following, worth = data
        settings = self.settings
        with torch.no_grad():
            best = self.smaller(self.targets, seen, actions)
        off = best - self.value(seen).squeeze(1)
        weight = (settings.expectile - (off.detach() < 0).float()).abs()
        minimise(self.of_value, (weight * off**2).mean())
        with torch.no_grad():
            off = best - self.value(seen).squeeze(1)
            weight = (settings.advantage_weight * off).exp().clamp(max=settings.max_advantage_weight)
        mean, std = self.distribution(seen)
        # The density in the environment's units, of a range of 4.
        minimise(self.of_actor, -(weight * (self.log_density(actions, mean, std) - math.log(2.0))).mean())
        with torch.no_grad():
            goal = rewards + worth * self.value(following).squeeze(1)
        errors = [((action_value(critic, seen, actions) - goal) ** 2).mean() for critic in self.critics]
        minimise(self.of_critics, errors[0] + errors[1])
        self.follow()


def transitions_of(dataset: Dataset) -> Any:
    """What was seen, done (before the tangent), earned, seen next, whether it ended, and whether the episode did."""
    arrays, step, row = dataset.arrays, 0, 0
    for length in dataset.manifest.episode_lengths:
        for t in range(length):
            share = np.clip(arrays["actions"][step].astype(np.float64) / 2, -1 + 1e-4, 1 - 1e-4)
            action = np.arctanh(share).astype(np.float32)
            seen, following = arrays["obs"][row + t], arrays["obs"][row + t + 1]
            yield seen, action, arrays["rewards"][step], following, arrays["terminated"][step], t == length - 1
            step += 1
        row += length + 1


def action_value(critic: nn.Module, seen: Tensor, actions: Tensor) -> Tensor:
    value: Tensor = critic(torch.cat([seen, actions.tanh()], dim=1)).squeeze(1)
    return value


def fill(network: nn.Module, parameters: list[nn.Parameter]) -> None:
    with torch.no_grad():
        for mine, theirs in zip(network.parameters(), parameters, strict=True):
            mine.copy_(theirs)


def minimise(optimizer: torch.optim.Optimizer, loss: Any) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
