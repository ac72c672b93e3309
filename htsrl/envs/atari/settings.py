"""What an Atari environment can be made with, and why something else is refused."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any

from htsrl.errors import ConfigError

LEAST = {"frame_skip": 1, "noop_max": 0, "screen_size": 1, "stack": 1}


def import_simulator() -> None:
    """Raise ConfigError where a package that Atari needs cannot be imported."""
    for package in ("ale_py", "cv2"):
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise ConfigError(f"Atari needs {package}: {error}; pip install htsrl[atari]") from error


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise ConfigError for the first setting that makes no sense."""
    import_simulator()
    _check_game(settings["game"])
    for name, least in LEAST.items():
        if settings[name] < least:
            raise ConfigError(f"{name}={settings[name]} must be at least {least}")
    stickiness = settings["repeat_action_probability"]
    if not 0 <= stickiness < 1:
        raise ConfigError(f"repeat_action_probability={stickiness} must be at least 0 and below 1")
    max_frames, start_frames = settings["max_frames"], settings["noop_max"] + settings["frame_skip"]
    if max_frames is not None and max_frames <= start_frames:
        raise ConfigError(
            f"max_frames={max_frames} leaves nothing to play: the no-ops and FIRE of a new game may take "
            f"{start_frames} frames; give more, or None for no limit"
        )


def check_same_settings(saved: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Raise ConfigError where a state was saved with other settings than `own`."""
    for name, value in own.items():
        if saved[name] != value:
            raise ConfigError(
                f"a state saved with {name}={saved[name]!r} cannot be restored with {name}={value!r}; make the "
                "environment with the same options"
            )


def _check_game(game: str) -> None:
    from ale_py import roms

    games = roms.get_all_rom_ids()
    if game not in games:
        near = difflib.get_close_matches(str(game).lower(), games) or ["pong", "breakout", "ms_pacman"]
        raise ConfigError(f"game={game!r} is not one that ale-py brings; names are like {', '.join(near)}")
