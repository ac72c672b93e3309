"""What settings of several algorithms have in common."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

SQUASHED: Mapping[str, Any] = MappingProxyType(
    {"bounded_actions": "squash", "state_dependent_std": True, "separate_value": False}
)
"""The network of a policy whose actions lie between two bounds, by the hyperbolic tangent."""
ACTOR_CRITIC_METRICS: Mapping[str, str] = MappingProxyType(
    {
        "train/learning_rate": "Step size of the update.",
        "train/value_loss": "Squared error of the values, before its coefficient.",
        "train/entropy_loss": "Negative entropy of the policy, before its coefficient.",
        "train/gradient_norm": "Length of the gradient before it is clipped, on average over optimizer steps.",
        "train/explained_variance": "1 where values predict the returns exactly, 0 where a constant would do as well.",
    }
)
"""What PPO and A2C both report."""
