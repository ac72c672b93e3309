"""SAC's settings by kind of environment."""

from __future__ import annotations

from collections.abc import Mapping

from htsrl.algorithms.shared_presets import CLASSIC, CONTROL
from htsrl.config.preset import Preset

PRESETS: Mapping[str, Preset] = {
    "classic_control": Preset(
        {"learning_rate": 1e-3, "temperature_learning_rate": 1e-3, "learning_starts": 500},
        {**CLASSIC, "num_envs": 2, "total_steps": 20_000},
    ),
    # The usual SAC (https://arxiv.org/abs/1812.05905): a gradient step for every step of an environment.
    "mujoco": Preset({"learning_starts": 5000}, CONTROL),
}
