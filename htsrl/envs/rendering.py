"""Environments that draw what happens in them, where they can."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from htsrl.config import EnvFactory
from htsrl.envs.make import make_env
from htsrl.errors import ConfigError

RGB = "rgb_array"
DEFAULT_FPS = 30.0
MAX_FPS = 240.0


def make_rendering_env(
    env: str | EnvFactory, env_args: Mapping[str, Any], imports: Sequence[str]
) -> Callable[[], gymnasium.Env[Any, Any]]:
    """Makes environments with `render_mode="rgb_array"`, or as they are where they do not take that."""
    plain_args = {name: value for name, value in env_args.items() if name != "render_mode"}

    def make() -> gymnasium.Env[Any, Any]:
        _prepare_for_no_display()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Gymnasium, where there is nothing to render
            try:
                return make_env(env, {**plain_args, "render_mode": RGB}, imports)
            except ConfigError:
                return make_env(env, plain_args, imports)

    return make


def _prepare_for_no_display() -> None:
    """Without one, MuJoCo's usual way to draw ends the process, and SDL complains; a user's own choice stays."""
    if not {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        for name, value in (("MUJOCO_GL", "egl"), ("SDL_VIDEODRIVER", "dummy")):
            os.environ.setdefault(name, value)


def frame_of(env: gymnasium.Env[Any, Any]) -> NDArray[np.uint8] | None:
    """What it draws now; None where it draws nothing, not in colours, or cannot, as without a graphics driver."""
    if env.render_mode != RGB:
        return None
    try:
        drawn: Any = env.render()
    except Exception:  # a simulator's own, of any kind
        return None
    if isinstance(drawn, list):  # of those that collect what they drew since the last time
        drawn = drawn[-1] if drawn else None
    if not isinstance(drawn, np.ndarray) or drawn.ndim != 3 or drawn.shape[2] not in (3, 4) or not drawn.size:
        return None
    return np.ascontiguousarray(drawn[..., :3]).astype(np.uint8, copy=False)


def fps_of(env: gymnasium.Env[Any, Any]) -> float:
    """Frames a second, as the environment says."""
    fps = env.metadata.get("render_fps")
    return min(float(fps), MAX_FPS) if isinstance(fps, int | float) and fps > 0 else DEFAULT_FPS
