"""SAC's settings, which executors read without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class SAC:
    """Soft actor-critic: off-policy, from a replay buffer, with a learned temperature."""

    name: ClassVar[str] = "sac"
    default_sync_interval: ClassVar[int] = 8
    optimizer: ClassVar[str] = "adam"
    optimizer_epsilon: ClassVar[float] = 1e-8
    required_network: ClassVar[Mapping[str, Any]] = {
        "bounded_actions": "squash",
        "state_dependent_std": True,
        "separate_value": False,
    }

    learning_rate: float = 3e-4
    """Step size of the optimizers of policy and critics."""
    temperature_learning_rate: float = 3e-4
    """Step size of the temperature's optimizer."""
    discount: float = 0.99
    """Gamma: what a reward one step later is worth."""
    n_step: int = 1
    """Rewards of so many steps are summed before the target critics take over."""
    minibatch_size: int = 256
    """Transitions that a gradient is taken of."""
    update_to_data: float = 1.0
    """Gradient steps for every step of an environment."""
    replay_capacity: int = 1_000_000
    """Transitions that the replay buffer holds, rounded down to whole rollouts of all environments."""
    learning_starts: int = 1000
    """Steps of all environments before the first gradient."""
    follow_rate: float = 0.005
    """Tau: how far target critics move towards the critics after every gradient step."""
    initial_temperature: float = 1.0
    """Alpha, the weight of the entropy, at first."""
    target_entropy: float | None = None
    """What the temperature steers the entropy of actions in [-1, 1] to. None: minus the number of dimensions."""
