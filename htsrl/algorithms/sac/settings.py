"""The settings of soft actor-critic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from htsrl.algorithms.sac.presets import PRESETS
from htsrl.algorithms.shared_settings import SQUASHED
from htsrl.config.preset import Preset


@dataclass(frozen=True)
class SAC:
    """Soft actor-critic: off-policy, from a replay buffer, with a learned temperature."""

    name: ClassVar[str] = "sac"
    algorithm: ClassVar[str] = "htsrl.algorithms.sac.algorithm:SACAlgorithm"
    metrics: ClassVar[Mapping[str, str]] = {
        "train/critic_loss": "Squared errors of both critics.",
        "train/q_value": "Mean value that the critics give to actions of the minibatches.",
        "train/policy_loss": "The entropy's cost less the value.",
        "train/entropy": "Entropy of actions in [-1, 1], estimated from those drawn.",
        "train/temperature": "Alpha, the weight of the entropy.",
    }
    default_sync_interval: ClassVar[int] = 8
    optimizer: ClassVar[str] = "adam"
    optimizer_epsilon: ClassVar[float] = 1e-8
    required_network: ClassVar[Mapping[str, Any]] = SQUASHED
    presets: ClassVar[Mapping[str, Preset]] = PRESETS

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
    priority_exponent: float = 0.0
    """Alpha of prioritised draws: transitions are drawn in proportion to (their last error)^alpha. 0: uniformly."""
    importance_exponent: float = 0.4
    """Beta of prioritised draws: how far importance weights make up for it; 1 is in full."""
    learning_starts: int = 1000
    """Steps of all environments before the first gradient."""
    follow_rate: float = 0.005
    """Tau: how far target critics move towards the critics after every gradient step."""
    initial_temperature: float = 1.0
    """Alpha, the weight of the entropy, at first."""
    target_entropy: float | None = None
    """What the temperature steers the entropy of actions in [-1, 1] to. None: minus the number of dimensions."""
