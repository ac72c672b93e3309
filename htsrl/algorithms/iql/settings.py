"""The settings of implicit Q-learning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from htsrl.algorithms.shared_settings import SQUASHED
from htsrl.config.rules import ABOVE_0, NOT_NEGATIVE, Rule


@dataclass(frozen=True)
class IQL:
    """Implicit Q-learning: values by expectile regression, never asked of actions outside the dataset."""

    name: ClassVar[str] = "iql"
    algorithm: ClassVar[str] = "htsrl.algorithms.iql.algorithm:IQLAlgorithm"
    metrics: ClassVar[Mapping[str, str]] = {
        "train/value_loss": "Expectile loss of the value.",
        "train/advantage": "How far the target critics' values of the data's actions lie above the value.",
        "train/critic_loss": "Squared errors of both critics.",
        "train/q_value": "Mean value that the critics give to actions of the minibatches.",
        "train/policy_loss": "Negative log-likelihood of the dataset's actions, by their weights.",
        "train/entropy": "Entropy of the policy.",
    }
    learns_offline: ClassVar[bool] = True
    default_sync_interval: ClassVar[int] = 100
    optimizer: ClassVar[str] = "adam"
    optimizer_epsilon: ClassVar[float] = 1e-8
    required_network: ClassVar[Mapping[str, Any]] = SQUASHED
    rules: ClassVar[Mapping[str, Rule]] = {
        "expectile": (lambda x: 0 < x < 1, "above 0 and below 1"),
        "advantage_weight": NOT_NEGATIVE,
        "max_advantage_weight": ABOVE_0,
    }

    learning_rate: float = 3e-4
    """Step size of all optimizers."""
    discount: float = 0.99
    """Gamma: what a reward one step later is worth."""
    n_step: int = 1
    """Rewards of so many steps are summed before the value takes over."""
    minibatch_size: int = 256
    """Transitions that a gradient is taken of."""
    follow_rate: float = 0.005
    """Tau: how far target critics move towards the critics after every gradient step."""
    expectile: float = 0.7
    """How far the value lies towards the best of the dataset's actions: 0.5 is their mean, 1 their maximum."""
    advantage_weight: float = 3.0
    """Beta: how much more the policy learns of actions that are better than the value; 0 is behaviour cloning."""
    max_advantage_weight: float = 100.0
    """Above which the weight of a single action is cut off."""
