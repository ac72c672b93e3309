"""Discrete SAC's settings by kind of environment."""

from __future__ import annotations

from collections.abc import Mapping

from htsrl.algorithms.shared_presets import CLASSIC
from htsrl.config.preset import Preset

PRESETS: Mapping[str, Preset] = {
    "classic_control": Preset(
        {"learning_rate": 1e-3, "temperature_learning_rate": 1e-3, "update_to_data": 0.5},
        {**CLASSIC, "num_envs": 4, "total_steps": 50_000},
    ),
}
