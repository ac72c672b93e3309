"""A3C-TD(0) for a linear policy in plain NumPy and float64, transition by transition, as in the paper's box."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn

from htsrl.systems.a3c_td0.algorithm import A3CTD0

Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Parameters:
    """Theta `[A, D + 1]` and omega `[D + 1]`; the last column is for a constant feature of 1."""

    theta: Float64
    omega: Float64

    @classmethod
    def of(cls, policy: nn.Module) -> Parameters:
        own = {name: parameter.detach().double().numpy() for name, parameter in policy.named_parameters()}
        assert own.keys() == {f"{head}_head.{part}" for head in ("action", "value") for part in ("weight", "bias")}
        theta = np.hstack([own["action_head.weight"], own["action_head.bias"][:, None]])
        return cls(theta, np.append(own["value_head.weight"][0], own["value_head.bias"]))


@dataclass(frozen=True)
class Transition:
    observation: Float64
    action: int
    reward: float
    next_observation: Float64
    terminated: bool = False


def updated(now: Parameters, read: Parameters, transition: Transition, k: int, settings: A3CTD0.Settings) -> Parameters:
    """Update k: the gradients of a worker's transition at what it read, added to what there is now."""
    features, following = (np.append(x, 1.0) for x in (transition.observation, transition.next_observation))
    future = 0.0 if transition.terminated else settings.discount * read.omega @ following
    delta = transition.reward + future - read.omega @ features
    exponentials = np.exp(read.theta @ features)
    score = np.eye(len(exponentials))[transition.action] - exponentials / exponentials.sum()
    alpha = settings.actor_step_size / (1 + k) ** settings.actor_exponent
    beta = settings.critic_step_size / (1 + k) ** settings.critic_exponent
    omega = now.omega + beta * delta * features
    if settings.critic_radius is not None:
        omega = omega * min(1.0, settings.critic_radius / np.linalg.norm(omega))
    return Parameters(now.theta + alpha * delta * np.outer(score, features), omega)


def assert_same_parameters(one: Parameters, other: Parameters) -> None:
    np.testing.assert_allclose(one.theta, other.theta, rtol=0, atol=1e-6)
    np.testing.assert_allclose(one.omega, other.omega, rtol=0, atol=1e-6)
