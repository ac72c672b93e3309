"""Environments that can save their state: `save_state() -> bytes` and `restore_state(bytes)`."""

from __future__ import annotations

from typing import Any

import gymnasium

METHODS = ("save_state", "restore_state")


def saves_its_state(env: gymnasium.Env[Any, Any]) -> bool:
    return all(env.has_wrapper_attr(name) for name in METHODS)
