"""PPO's settings by kind of environment."""

from __future__ import annotations

from collections.abc import Mapping

from htsrl.config.network import Network
from htsrl.config.preset import Preset

# Shards are for large minibatches of images. One process learns from 4 shards of 128 of the usual 512 frames about as
# fast as from the whole, but from 2 of A2C's 80 slower, and two cores have enough to do (docs/architecture.md).
PRESETS: Mapping[str, Preset] = {
    # The usual PPO on Atari (https://arxiv.org/abs/1707.06347), with the paper's 16 environments.
    "atari": Preset(
        {"learning_rate": 2.5e-4, "epochs": 4, "num_minibatches": 4, "clip_range": 0.1, "entropy_coefficient": 0.01},
        {"num_envs": 16, "sync_interval": 128, "gradient_shards": 4, "total_steps": 10_000_000},
    ),
    # The paper's settings for all eleven academy scenarios, with the loss of its released code: that halves the squared
    # error before it multiplies by 0.5, and normalises advantages once per batch.
    "football": Preset(
        {
            "learning_rate": 3.43e-4,
            "discount": 0.993,
            "gae_lambda": 0.95,
            "epochs": 2,
            "num_minibatches": 8,
            "clip_range": 0.08,
            "value_clip_range": 0.08,
            "entropy_coefficient": 0.003,
            "value_coefficient": 0.25,
            "max_gradient_norm": 0.64,
            "advantage_normalization": "batch",
        },
        {"num_envs": 16, "sync_interval": 128, "gradient_shards": 2, "total_steps": 5_000_000},
    ),
    "mujoco": Preset(
        {"learning_rate": 3e-4, "epochs": 10, "num_minibatches": 32, "normalize_rewards": True},
        {
            "network": Network(normalize_observations=True),
            "num_envs": 16,
            "sync_interval": 128,
            "total_steps": 1_000_000,
        },
    ),
}
