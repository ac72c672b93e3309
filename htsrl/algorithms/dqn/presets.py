"""DQN's settings by kind of environment."""

from __future__ import annotations

from collections.abc import Mapping

from htsrl.algorithms.shared_presets import CLASSIC
from htsrl.config.preset import Preset

PRESETS: Mapping[str, Preset] = {
    # Double, duelling, three steps (https://arxiv.org/abs/1710.02298). Every transition takes 56 kB: 50,000 are 2.8 GB.
    "atari": Preset(
        {
            "learning_rate": 1e-4,
            "optimizer_epsilon": 1.5e-4,
            "n_step": 3,
            "duelling": True,
            "target_period": 2000,
            "final_epsilon": 0.01,
            "exploration_steps": 250_000,
            "replay_capacity": 50_000,
            "learning_starts": 20_000,
        },
        {"num_envs": 8, "sync_interval": 8, "total_steps": 10_000_000},
    ),
    "classic_control": Preset(
        {
            "learning_rate": 1e-3,
            "minibatch_size": 64,
            "update_to_data": 0.5,
            "target_period": 200,
            "exploration_steps": 10_000,
            "final_epsilon": 0.04,
        },
        {**CLASSIC, "num_envs": 4, "total_steps": 50_000},
    ),
}
