"""The settings of TD3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from htsrl.algorithms.td3.presets import PRESETS
from htsrl.config.preset import Preset
from htsrl.config.rules import ABOVE_0, AT_LEAST_1, NOT_NEGATIVE, Rule


@dataclass(frozen=True)
class TD3:
    """Twin delayed deep deterministic policy gradient: off-policy, from a replay buffer."""

    name: ClassVar[str] = "td3"
    algorithm: ClassVar[str] = "htsrl.algorithms.td3.algorithm:TD3Algorithm"
    metrics: ClassVar[Mapping[str, str]] = {
        "train/critic_loss": "Squared errors of both critics.",
        "train/q_value": "Mean value that the critics give to actions of the minibatches.",
        "train/policy_loss": "Negative value of what the policy would do; of updates in which it learned.",
        "train/exploration_noise": "Deviation of the noise on actions in [-1, 1] of the next version.",
    }
    rules: ClassVar[Mapping[str, Rule]] = {
        "policy_delay": AT_LEAST_1,
        "exploration_noise": ABOVE_0,
        "initial_exploration_noise": ABOVE_0,
        "target_noise": NOT_NEGATIVE,
        "target_noise_clip": NOT_NEGATIVE,
    }
    default_sync_interval: ClassVar[int] = 8
    optimizer: ClassVar[str] = "adam"
    optimizer_epsilon: ClassVar[float] = 1e-8
    own_exploration: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Preset]] = PRESETS
    required_network: ClassVar[Mapping[str, Any]] = {
        "bounded_actions": "clip",
        "state_dependent_std": False,
        "separate_value": False,
    }

    learning_rate: float = 3e-4
    """Step size of the optimizers of policy and critics."""
    discount: float = 0.99
    """Gamma: what a reward one step later is worth."""
    n_step: int = 1
    """Rewards of so many steps are summed before the target critics take over."""
    minibatch_size: int = 256
    """Transitions that a gradient is taken of."""
    update_to_data: float = 1.0
    """Gradient steps for every step of an environment."""
    policy_delay: int = 2
    """Gradient steps of the critics for every one of the policy and the target networks."""
    target_noise: float = 0.2
    """Deviation of the noise on the target policy's actions in [-1, 1], which smooths what critics aim at."""
    target_noise_clip: float = 0.5
    """That noise is cut off here."""
    exploration_noise: float = 0.1
    """Deviation of the noise on actions in [-1, 1] while learning."""
    initial_exploration_noise: float = 1.0
    """The same before the first gradient."""
    replay_capacity: int = 1_000_000
    """Transitions that the replay buffer holds, rounded down to whole rollouts of all environments."""
    priority_exponent: float = 0.0
    """Alpha of prioritised draws: transitions are drawn in proportion to (their last error)^alpha. 0: uniformly."""
    importance_exponent: float = 0.4
    """Beta of prioritised draws: how far importance weights make up for it; 1 is in full."""
    learning_starts: int = 1000
    """Steps of all environments before the first gradient."""
    follow_rate: float = 0.005
    """Tau: how far target networks move towards policy and critics each time that the policy has learned."""
