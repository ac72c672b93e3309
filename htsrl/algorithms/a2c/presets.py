"""A2C's settings by kind of environment."""

from __future__ import annotations

from collections.abc import Mapping

from htsrl.config.network import Network
from htsrl.config.preset import Preset

PRESETS: Mapping[str, Preset] = {
    # The paper's: 16 environments, 5 steps, RMSprop.
    "atari": Preset(
        {"learning_rate": 7e-4, "entropy_coefficient": 0.01},
        {"num_envs": 16, "sync_interval": 5, "total_steps": 20_000_000},
    ),
    "football": Preset(
        {"learning_rate": 7e-4, "discount": 0.993, "entropy_coefficient": 0.01},
        {"num_envs": 16, "sync_interval": 5, "total_steps": 5_000_000},
    ),
    "mujoco": Preset(
        {"learning_rate": 7e-4, "gae_lambda": 0.95, "normalize_rewards": True},
        {
            "network": Network(normalize_observations=True),
            "num_envs": 16,
            "sync_interval": 8,
            "total_steps": 1_000_000,
        },
    ),
}
