"""The settings of conservative Q-learning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from htsrl.algorithms.shared_settings import SQUASHED
from htsrl.config.rules import ABOVE_0, AT_LEAST_1, NOT_NEGATIVE, Rule


@dataclass(frozen=True)
class ConservativeSettings:
    """What conservative Q-learning and its variants have in common."""

    learns_offline: ClassVar[bool] = True
    default_sync_interval: ClassVar[int] = 100
    optimizer: ClassVar[str] = "adam"
    optimizer_epsilon: ClassVar[float] = 1e-8
    required_network: ClassVar[Mapping[str, Any]] = SQUASHED
    rules: ClassVar[Mapping[str, Rule]] = {
        "critic_learning_rate": ABOVE_0,
        "conservative_weight": NOT_NEGATIVE,
        "sampled_actions": AT_LEAST_1,
    }

    learning_rate: float = 3e-4
    """Step size of the policy's optimizer."""
    critic_learning_rate: float = 3e-4
    """Step size of the critics' optimizer."""
    temperature_learning_rate: float = 3e-4
    """Step size of the temperature's optimizer."""
    discount: float = 0.99
    """Gamma: what a reward one step later is worth."""
    n_step: int = 1
    """Rewards of so many steps are summed before the target critics take over."""
    minibatch_size: int = 256
    """Transitions that a gradient is taken of."""
    follow_rate: float = 0.005
    """Tau: how far target critics move towards the critics after every gradient step."""
    conservative_weight: float = 5.0
    """What the critics' excess over the values of the dataset's actions counts beside their squared error."""
    sampled_actions: int = 10
    """Of each kind, actions that the excess is estimated from: uniform, the policy's, and the policy's a step later."""
    initial_temperature: float = 1.0
    """Alpha, the weight of the entropy, at first."""
    target_entropy: float | None = None
    """What the temperature steers the entropy of actions in [-1, 1] to. None: minus the number of dimensions."""


@dataclass(frozen=True)
class CQL(ConservativeSettings):
    """Conservative Q-learning on soft actor-critic: values of actions that the dataset does not hold are kept low."""

    name: ClassVar[str] = "cql"
    algorithm: ClassVar[str] = "htsrl.algorithms.cql.algorithm:CQLAlgorithm"
    metrics: ClassVar[Mapping[str, str]] = {
        "train/critic_loss": "Squared errors of both critics, and their excess by its weight.",
        "train/q_value": "Mean value that the critics give to actions of the minibatches.",
        "train/q_excess": "How far the soft maximum over actions lies above values of the data's (both critics).",
        "train/policy_loss": "The entropy's cost less the value.",
        "train/entropy": "Entropy of actions in [-1, 1], estimated from those drawn.",
        "train/temperature": "Alpha, the weight of the entropy.",
    }
