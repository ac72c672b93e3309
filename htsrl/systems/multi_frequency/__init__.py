"""Offline RL at multiple frequencies (https://arxiv.org/abs/2207.13082); importing this registers its environments."""

from __future__ import annotations

import gymnasium

for _name, _make in {"Pendulum": "pendulum", "HalfCheetah": "half_cheetah", "Hopper": "hopper"}.items():
    gymnasium.register(id=f"htsrl/{_name}Dt-v0", entry_point=f"{__name__}.environments:{_make}")
