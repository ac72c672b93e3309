"""TD3's settings by kind of environment."""

from __future__ import annotations

from collections.abc import Mapping

from htsrl.algorithms.shared_presets import CLASSIC, CONTROL
from htsrl.config.preset import Preset

PRESETS: Mapping[str, Preset] = {
    "classic_control": Preset(
        {"learning_rate": 1e-3, "learning_starts": 500},
        {**CLASSIC, "num_envs": 2, "total_steps": 20_000},
    ),
    # The usual TD3 (https://arxiv.org/abs/1802.09477).
    "mujoco": Preset({"learning_starts": 10_000}, CONTROL),
}
