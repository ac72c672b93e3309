"""The settings of behaviour cloning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class BC:
    """Behaviour cloning: the likeliest policy for what was done in the dataset."""

    name: ClassVar[str] = "bc"
    algorithm: ClassVar[str] = "htsrl.algorithms.bc.algorithm:BCAlgorithm"
    metrics: ClassVar[Mapping[str, str]] = {
        "train/policy_loss": "Negative log-likelihood of the dataset's actions.",
        "train/entropy": "Entropy of the policy.",
    }
    learns_offline: ClassVar[bool] = True
    default_sync_interval: ClassVar[int] = 100
    optimizer: ClassVar[str] = "adam"
    optimizer_epsilon: ClassVar[float] = 1e-8

    learning_rate: float = 3e-4
    """Step size of the optimizer."""
    minibatch_size: int = 256
    """Transitions that a gradient is taken of."""
