"""BC, CQL and IQL again, plainly: torch's layers and optimizers, a dataset as a list of transitions.

They share with htsrl the initial weights and the random numbers, which are functions of seed and place.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from off_policy_reference import Actor, Flat, action_values, log_density, mlp, scalar, twins
from torch import Tensor

from htsrl import Experiment
from htsrl.algorithms.models import built_model, declared_models
from htsrl.datasets.dataset import Dataset
from htsrl.policies.policy import policy_for
from htsrl.seeding import ActionNoise, Purpose, replay_draws
from htsrl.spaces import Interface

NOISE = ActionNoise(normal=1)


class Plain:
    """Three numbers are seen, one is done, from -2 to 2."""

    num_noises = 0

    def __init__(self, experiment: Experiment, dataset: Dataset) -> None:
        self.settings, self.seed, self.steps = experiment.algorithm, experiment.seed, experiment.interval_steps
        interface = Interface(dataset.interface.observation_space, dataset.interface.action_space, squashes=True)
        initial: Any = policy_for(experiment, interface)
        self.actor = Actor()
        parts = [*initial.encoder.parameters(), *initial.action_head.parameters()]
        self.of_actor = Flat([self.actor], parts, self.settings.learning_rate)
        self.transitions = list(transitions_of(dataset))
        self.models = declared_models(experiment, interface)
        if "critics" in self.models:
            rate = getattr(self.settings, "critic_learning_rate", self.settings.learning_rate)
            (self.critics, self.of_critics), (self.targets, self.of_targets) = (
                twins(self.built("critics"), of_rate) for of_rate in (rate, 0.0)
            )

    def built(self, name: str) -> Any:
        return built_model(self.models[name], name, self.seed)

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

    def follow(self) -> None:
        self.of_targets.follow(self.of_critics, self.settings.follow_rate)


class PlainBC(Plain):
    def descend(self, number: int, step: int, *data: Tensor) -> None:
        seen, actions, *_ = data
        self.of_actor.descend(-log_density(actions, *self.actor(seen)).mean())


class PlainCQL(Plain):
    num_noises = 5

    def __init__(self, experiment: Experiment, dataset: Dataset) -> None:
        super().__init__(experiment, dataset)
        self.alpha, self.of_alpha = scalar(self.settings.initial_temperature, self.settings.temperature_learning_rate)

    def descend(self, number: int, step: int, *data: Tensor) -> None:
        seen, actions, rewards, following, worth = data
        settings, alpha = self.settings, self.alpha[0].detach().exp()
        noise, next_noise = self.noise(number, step, 0, 1), self.noise(number, step, 1, 1)
        with torch.no_grad():
            next_actions, _ = self.actor.draw(following, next_noise)
            goals = rewards + worth * action_values(self.targets, following, next_actions).amin(dim=0)
            others, log_densities = self.other_actions(number, step, seen, following)
        values = action_values(self.critics, seen, actions)
        error = (values - goals).square().mean(dim=1).sum()
        count = others.shape[1]
        of_others = action_values(self.critics, seen.repeat_interleave(count, dim=0), others.flatten()[:, None])
        weighed = of_others.view(2, len(seen), count) - log_densities
        excess = (weighed.logsumexp(dim=2) - math.log(count) - values).mean(dim=1).sum()
        self.of_critics.descend(error + settings.conservative_weight * excess)
        mine, log_probs = self.actor.draw(seen, noise)
        self.of_actor.descend((alpha * log_probs - action_values(self.critics, seen, mine).amin(dim=0)).mean())
        with torch.no_grad():
            _, log_probs = self.actor.draw(seen, noise)
        self.of_alpha.descend(-(self.alpha[0] * (log_probs - 1.0)).mean())
        self.follow()

    def other_actions(self, number: int, step: int, seen: Tensor, following: Tensor) -> tuple[Tensor, Tensor]:
        """Actions that the sum over all of them is estimated from, and the logarithms of their densities."""
        count = self.settings.sampled_actions
        of_policy, of_next, uniform = (self.noise(number, step, use, count) for use in (2, 3, 4))
        shares = (2 * torch.special.ndtr(uniform) - 1).clamp(-1 + 1e-4, 1 - 1e-4)
        parts = [(shares.atanh(), torch.full((len(shares),), math.log(0.5)))]
        for at, noise in ((seen, of_policy), (following, of_next)):
            parts.append(self.actor.draw(at.repeat_interleave(count, dim=0), noise))
        actions, log_densities = zip(*((x.view(-1, count), y.view(-1, count)) for x, y in parts), strict=True)
        return torch.cat(actions, dim=1), torch.cat(log_densities, dim=1)


class PlainIQL(Plain):
    def __init__(self, experiment: Experiment, dataset: Dataset) -> None:
        super().__init__(experiment, dataset)
        own = self.built("value")
        self.value = mlp(3, 1)
        parts = [*own.hidden.parameters(), *own.head.parameters()]
        self.of_value = Flat([self.value], parts, self.settings.learning_rate)

    def descend(self, number: int, step: int, *data: Tensor) -> None:
        seen, actions, rewards, following, worth = data
        settings = self.settings
        with torch.no_grad():
            best = action_values(self.targets, seen, actions).amin(dim=0)
        off = best - self.value(seen).squeeze(1)
        weights = torch.where(off < 0, 1 - settings.expectile, settings.expectile)
        self.of_value.descend((weights * off.square()).mean())
        with torch.no_grad():
            off = best - self.value(seen).squeeze(1)
            weights = (settings.advantage_weight * off).exp().clamp(max=settings.max_advantage_weight)
        self.of_actor.descend(-(weights * log_density(actions, *self.actor(seen))).mean())
        with torch.no_grad():
            goals = rewards + worth * self.value(following).squeeze(1)
        self.of_critics.descend((action_values(self.critics, seen, actions) - goals).square().mean(dim=1).sum())
        self.follow()


def transitions_of(dataset: Dataset) -> Any:
    """What was seen, done (before the tangent), earned, seen next, whether it ended, and whether the episode did."""
    arrays, step, row = dataset.arrays, 0, 0
    for length in dataset.manifest.episode_lengths:
        for t in range(length):
            share = np.clip((arrays["actions"][step].astype(np.float64) + 2) / 2 - 1, -1 + 1e-4, 1 - 1e-4)
            action = np.arctanh(share).astype(np.float32)
            seen, following = arrays["obs"][row + t], arrays["obs"][row + t + 1]
            yield seen, action, arrays["rewards"][step], following, arrays["terminated"][step], t == length - 1
            step += 1
        row += length + 1
