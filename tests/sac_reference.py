"""SAC again, plainly, with the environments and minibatches of `off_policy_reference`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from off_policy_reference import Actor, Flat, Plain, action_values, scalar, twins
from torch import Tensor

from htsrl import Experiment
from htsrl.seeding import ActionNoise, Purpose


class PlainSac(Plain):
    """Learns Pendulum: three numbers are seen, one is done, from -2 to 2."""

    def __init__(self, experiment: Experiment) -> None:
        super().__init__(experiment, ActionNoise(normal=1))
        rate = self.settings.learning_rate
        self.actor = Actor()
        parts = [*self.initial.encoder.parameters(), *self.initial.action_head.parameters()]
        self.of_actor = Flat([self.actor], parts, rate)
        (self.critics, self.of_critics), (self.targets, self.of_targets) = (
            twins(self.built("critics"), of_rate) for of_rate in (rate, 0.0)
        )
        self.alpha, self.of_alpha = scalar(self.settings.initial_temperature, self.settings.temperature_learning_rate)

    def act(self, seen: Tensor, noise: Tensor) -> Any:
        with torch.no_grad():
            return self.actor.draw(seen, noise)[0].numpy()

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
            next_actions, log_probs = self.actor.draw(following, next_noise)
            value = action_values(self.targets, following, next_actions).amin(dim=0)
            goals = rewards + worth * (value - alpha * log_probs)
        self.of_critics.descend((action_values(self.critics, seen, actions) - goals).square().mean(dim=1).sum())
        mine, log_probs = self.actor.draw(seen, noise)
        values = action_values(self.critics, seen, mine).amin(dim=0)
        self.of_actor.descend((alpha * log_probs - values).mean())
        self.of_alpha.descend(self.alpha[0] * (-log_probs.detach().mean() - -1.0))
        self.of_targets.follow(self.of_critics, self.settings.follow_rate)
