"""What SAC, its discrete twin and CQL have in common: a learned temperature, and actions that are drawn to learn from.

policy   minimises alpha log pi(a | s) - min Q(s, a),   a ~ pi(s), reparametrised
alpha    minimises log alpha (entropy - target entropy)
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from htsrl.algorithms.models import Models
from htsrl.algorithms.statistics import Statistics
from htsrl.policies.distributions import SquashedGaussian
from htsrl.policies.policy import Policy


class Temperature(nn.Module):
    """Alpha, by its logarithm."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor(math.log(initial)))


def temperature_of(models: Models) -> Tensor:
    return cast(Temperature, models["temperature"]).log.exp()


def drawn(policy: Policy, observations: dict[str, Tensor], noise: Tensor) -> tuple[Tensor, Tensor]:
    """Actions, differentiable, and the logarithms of their densities as actions in [-1, 1]."""
    distribution, _ = policy(observations)
    assert isinstance(distribution, SquashedGaussian)
    actions = distribution.sample(noise)
    return actions, distribution.log_prob(actions) + distribution.log_volume


def policy_loss(
    models: Models, observations: dict[str, Tensor], seen: dict[str, Tensor], noise: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """With the entropy and the mean value; critics look at `seen`."""
    actions, log_probs = drawn(models.policy, observations, noise)
    values = models["critics"](seen, actions).amin(dim=0)
    loss = (temperature_of(models).detach() * log_probs - values).mean()
    return loss, -log_probs.mean(), values.mean()


def temperature_loss(models: Models, entropies: Tensor, target: float) -> tuple[Tensor, Tensor, Tensor]:
    """With the temperature and the mean entropy."""
    log = cast(Temperature, models["temperature"]).log
    return (log * (entropies - target)).mean(), log.exp(), entropies.mean()


def target_entropy(setting: float | None, num_dimensions: int) -> float:
    """None stands for minus one per dimension of an action."""
    return -float(num_dimensions) if setting is None else setting


def record(statistics: Statistics, critics: Tensor, policy: Tensor, temperature: Tensor) -> None:
    """What the losses of critics and policy reported, and alpha."""
    statistics.add("train/critic_loss", critics[0])
    statistics.add("train/q_value", critics[1])
    statistics.add("train/policy_loss", policy[0])
    statistics.add("train/entropy", policy[1])
    statistics.add("train/temperature", temperature)
