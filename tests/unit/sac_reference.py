"""SAC again, plainly, with the environments and minibatches of `off_policy_reference`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from off_policy_reference import Flat, Plain, mlp, twins
from torch import Tensor, nn

from htsrl import Experiment
from htsrl.seeding import ActionNoise, Purpose


class PlainSac(Plain):
    """Learns Pendulum: three numbers are seen, one is done, from -2 to 2."""

    def __init__(self, experiment: Experiment) -> None:
        super().__init__(experiment, ActionNoise(normal=1))
        rate = self.settings.learning_rate
        self.actor = mlp(3, 2)
        parts = [*self.initial.encoder.parameters(), *self.initial.action_head.parameters()]
        self.of_actor = Flat([self.actor], parts, rate)
        (self.critics, self.of_critics), (self.targets, self.of_targets) = (
            twins(self.built("critics"), of_rate) for of_rate in (rate, 0.0)
        )
        self.alpha = nn.ParameterList([torch.tensor(math.log(self.settings.initial_temperature))])
        self.of_alpha = Flat([self.alpha], list(self.alpha), self.settings.temperature_learning_rate)

    def act(self, seen: Tensor, noise: Tensor) -> Any:
        with torch.no_grad():
            return self.draw(seen, noise)[0].numpy()

    def to_env(self, action: Any) -> Any:
        return np.asarray(2 * np.tanh(action.astype(np.float64)), np.float32)

    def learn(self, number: int, g: int, *minibatch: Tensor) -> None:
        seen, actions, rewards, following, worth = minibatch
        size = self.settings.minibatch_size
        noise, next_noise = (
            torch.from_numpy(self.noise.draw(self.seed, 2 * g + end, number * size, size, Purpose.LEARNING))
            for end in range(2)
        )
        with torch.no_grad():
            alpha = self.alpha[0].exp()
            next_actions, log_probs = self.draw(following, next_noise)
            value = self.values(self.targets, following, next_actions).amin(dim=0)
            goals = rewards + worth * (value - alpha * log_probs)
        self.of_critics.descend((self.values(self.critics, seen, actions) - goals).square().mean(dim=1).sum())
        mine, log_probs = self.draw(seen, noise)
        values = self.values(self.critics, seen, mine).amin(dim=0)
        self.of_actor.descend((alpha * log_probs - values).mean())
        self.of_alpha.descend(self.alpha[0] * (-log_probs.detach().mean() - -1.0))
        self.of_targets.follow(self.of_critics, self.settings.follow_rate)

    def draw(self, seen: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions before the tangent, and the log-densities behind it."""
        mean, log_std = self.actor(seen).chunk(2, dim=1)
        log_std = log_std.clamp(-20, 2)
        drawn = mean + log_std.exp() * noise
        errors = (drawn - mean) * (-log_std).exp()
        log_normal = (errors * errors * -0.5 - log_std - 0.5 * math.log(2 * math.pi)).sum(dim=1)
        # log(1 - tanh^2), and the range from -2 to 2 in and out again, as rounding has it.
        distance = drawn.abs()
        log_slope = 2 * (math.log(2) - distance - torch.log1p(torch.exp(-2 * distance)))
        half_range = torch.tensor(2.0).log()
        return drawn, log_normal - (half_range + log_slope).sum(dim=1) + half_range

    @staticmethod
    def values(critics: list[nn.Sequential], seen: Tensor, actions: Tensor) -> Tensor:
        both = torch.cat([seen, actions.tanh()], dim=1)
        return torch.stack([critic(both).squeeze(1) for critic in critics])
