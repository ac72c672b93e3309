"""The settings of DQN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from htsrl.algorithms.dqn.presets import PRESETS
from htsrl.config.preset import Preset
from htsrl.config.rules import A_SHARE, AT_LEAST_1, NOT_NEGATIVE, Rule


@dataclass(frozen=True)
class DQN:
    """Deep Q-network: off-policy, from a replay buffer; double, duelling, n-step and prioritised where asked for."""

    name: ClassVar[str] = "dqn"
    algorithm: ClassVar[str] = "htsrl.algorithms.dqn.algorithm:DQNAlgorithm"
    metrics: ClassVar[Mapping[str, str]] = {
        "train/loss": "Huber loss of the action values.",
        "train/q_value": "Mean value of the actions of the minibatches.",
        "train/target_value": "Mean of what those values aim at.",
        "train/gradient_norm": "Length of the gradient before it is clipped, on average over optimizer steps.",
        "train/epsilon": "How often the next version acts at random.",
    }
    rules: ClassVar[Mapping[str, Rule]] = {
        "initial_epsilon": A_SHARE,
        "final_epsilon": A_SHARE,
        "exploration_steps": NOT_NEGATIVE,
        "target_period": AT_LEAST_1,
    }
    default_sync_interval: ClassVar[int] = 8
    optimizer: ClassVar[str] = "adam"
    own_exploration: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Preset]] = PRESETS
    required_network: ClassVar[Mapping[str, Any]] = {"separate_value": False}

    learning_rate: float = 1e-4
    """Step size of the optimizer."""
    optimizer_epsilon: float = 1e-8
    """Added to the denominator of the update rule."""
    discount: float = 0.99
    """Gamma: what a reward one step later is worth."""
    n_step: int = 1
    """Rewards of so many steps are summed before the target network takes over."""
    double: bool = True
    """Let the network that learns choose the action that the target network values (https://arxiv.org/abs/1509.06461).
    """
    duelling: bool = False
    """Add up action values from a value and advantages (https://arxiv.org/abs/1511.06581)."""
    minibatch_size: int = 32
    """Transitions that a gradient is taken of."""
    update_to_data: float = 0.25
    """Gradient steps for every step of an environment."""
    max_gradient_norm: float = 10.0
    """Gradients longer than this are scaled down to it."""
    target_period: int = 1000
    """Gradient steps between two moves of the target network."""
    follow_rate: float = 1.0
    """Tau: how far the target network moves towards the other; 1 makes them equal."""
    initial_epsilon: float = 1.0
    """How often the first version acts at random."""
    final_epsilon: float = 0.05
    """The same after `exploration_steps`."""
    exploration_steps: int = 50_000
    """Steps of all environments over which epsilon goes from the first to the last, in a straight line."""
    replay_capacity: int = 100_000
    """Transitions that the replay buffer holds, rounded down to whole rollouts of all environments."""
    priority_exponent: float = 0.0
    """Alpha of prioritised draws: transitions are drawn in proportion to (their last error)^alpha. 0: uniformly."""
    importance_exponent: float = 0.4
    """Beta of prioritised draws: how far importance weights make up for it; 1 is in full."""
    learning_starts: int = 1000
    """Steps of all environments before the first gradient."""
