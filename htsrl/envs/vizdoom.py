"""Doom: the screen as it is learned from, and episodes that time limits end with a screen to look at."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from htsrl.envs.extras import import_simulator
from htsrl.errors import ConfigError

Info = dict[str, Any]
UInt8 = NDArray[np.uint8]


def make_vizdoom(
    env_id: str,
    *,
    frame_skip: int = 4,
    screen_size: int = 84,
    stack: int = 4,
    colour: bool = False,
    screen_resolution: str = "RES_160X120",
    **env_args: Any,
) -> gymnasium.Env[Any, Any]:
    """The scenario that VizDoom registers as `env_id`.

    Observation: the last `stack` screens, oldest first, grey or in colour, drawn at `screen_resolution` and resized to
    `screen_size`, channels first. Health and ammunition are seen where the scenario's screen shows them. An action is
    held for `frame_skip` of Doom's 35 tics a second. More arguments are VizDoom's own, `doom_skill=1` for example.
    """
    for name, value in (("frame_skip", frame_skip), ("screen_size", screen_size), ("stack", stack)):
        if value < 1:
            raise ConfigError(f"{name}={value} must be at least 1")
    import_simulator("vizdoom.gymnasium_wrapper", extra="vizdoom")
    # Doom keeps its settings in a file, by default one that all games in the working directory share.
    settings_folder = tempfile.TemporaryDirectory(prefix="htsrl-doom-")
    doom = gymnasium.make(
        env_id,
        disable_env_checker=True,
        frame_skip=frame_skip,
        screen_format="RGB24" if colour else "GRAY8",
        screen_resolution=screen_resolution,
        doom_config_path=str(Path(settings_folder.name) / "doom.ini"),
        **env_args,
    )
    tic_limit = _lift_time_limit(doom)
    if isinstance(doom.action_space, spaces.Dict):
        doom = ButtonsOnly(doom)
    env: gymnasium.Env[Any, Any] = Screens(doom, screen_size, stack, settings_folder)
    return gymnasium.wrappers.TimeLimit(env, math.ceil(tic_limit / frame_skip)) if tic_limit else env


def _lift_time_limit(doom: gymnasium.Env[Any, Any]) -> int:
    """Doom's own limit in tics, 0 for none, which then no longer holds.

    Doom ends an episode at its limit as any other: terminated, with a black screen.
    """
    game: Any = doom.get_wrapper_attr("game")
    tic_limit = int(game.get_episode_timeout())
    game.set_episode_timeout(0)
    return tic_limit


class ButtonsOnly(gymnasium.ActionWrapper[Any, Any, Any]):
    """Presses buttons and leaves the mouse alone."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        assert isinstance(env.action_space, spaces.Dict)
        self.action_space = env.action_space["binary"]
        mouse = env.action_space["continuous"]
        self._mouse_at_rest = np.zeros(mouse.shape or (), mouse.dtype)

    def action(self, action: Any) -> dict[str, Any]:
        return {"binary": action, "continuous": self._mouse_at_rest}


class Screens(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The last screens, resized, channels first; owns the folder of the game's settings."""

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        size: int,
        stack: int,
        settings_folder: tempfile.TemporaryDirectory[str],
    ) -> None:
        super().__init__(env)
        self._cv2 = import_simulator("cv2", extra="vizdoom")
        self._settings_folder = settings_folder
        assert isinstance(env.observation_space, spaces.Dict)
        *_, self._channels = env.observation_space["screen"].shape or ()
        self._screens: UInt8 = np.zeros((stack * self._channels, size, size), np.uint8)
        self.observation_space = spaces.Box(0, 255, self._screens.shape, np.uint8)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[UInt8, Info]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._screens.reshape(-1, self._channels, *self._screens.shape[1:])[:] = self._resized(observation)
        return self._screens.copy(), info

    def step(self, action: Any) -> tuple[UInt8, Any, bool, bool, Info]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._screens[: -self._channels] = self._screens[self._channels :].copy()
        self._screens[-self._channels :] = self._resized(observation)
        return self._screens.copy(), reward, terminated, truncated, info

    def close(self) -> None:
        super().close()
        self._settings_folder.cleanup()

    def _resized(self, observation: dict[str, Any]) -> UInt8:
        """The screen as (channels, size, size)."""
        resized: UInt8 = self._cv2.resize(
            observation["screen"], self._screens.shape[1:], interpolation=self._cv2.INTER_AREA
        )
        return resized.reshape(*self._screens.shape[1:], self._channels).transpose(2, 0, 1)
