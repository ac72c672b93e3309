"""Puzzles: small environments that need memory, masks, mixed spaces or a team; importing this registers them."""

from __future__ import annotations

import gymnasium

for _name, _module in {
    "HiddenCartPole": "hidden_cartpole",
    "Recall": "recall",
    "Lock": "lock",
    "Crane": "crane",
    "Memoir": "memoir",
}.items():
    gymnasium.register(id=f"htsrl/{_name}-v0", entry_point=f"{__name__}.{_module}:{_name}")

# Gymnasium's wrappers expect one reward and one end a step; a team has a row of them.
gymnasium.register(
    id="htsrl/Relay-v0", entry_point=f"{__name__}.relay:Relay", order_enforce=False, disable_env_checker=True
)
