"""What presets of several algorithms have in common."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from htsrl.config.network import Network

CLASSIC: Mapping[str, Any] = MappingProxyType(
    {"network": Network(hidden_sizes=(64, 64), activation="relu"), "sync_interval": 8}
)
"""Of algorithms with a replay buffer, on classic control."""
CONTROL: Mapping[str, Any] = MappingProxyType(
    {
        "network": Network(hidden_sizes=(256, 256), activation="relu"),
        "num_envs": 4,
        "sync_interval": 8,
        "gradient_shards": 2,
        "total_steps": 1_000_000,
    }
)
"""The same on MuJoCo. Nearly all of the time goes into gradients, which two cores take in shards of 128 transitions
(docs/off-policy.md)."""
