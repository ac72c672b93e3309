"""Settings to start from, by kind of environment and algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import gymnasium

from htsrl.config import EnvFactory, Experiment
from htsrl.config.algorithm_settings import own_settings, settings_class
from htsrl.config.preset import Preset
from htsrl.errors import ConfigError

KINDS = ("atari", "classic_control", "football", "mujoco")
"""Of environments; presets are called by them."""


def presets_of(algo: str) -> Mapping[str, Preset]:
    """Those that an algorithm has, by kind of environment."""
    found: Mapping[str, Preset] = getattr(settings_class(algo), "presets", {})
    return found


def preset(env: str | EnvFactory, algo: str = "ppo", name: str | None = None) -> Experiment:
    """An experiment with the preset `name`, by default the one for the kind of environment that `env` is."""
    name = name or (preset_name(env) if isinstance(env, str) else None)
    if name is None:
        raise ConfigError(f"there is no preset for {env!r}; name one of {', '.join(KINDS)}, or use htsrl.Experiment")
    if name not in KINDS:
        raise ConfigError(f"preset {name!r} is not known; use one of {', '.join(KINDS)}")
    found = presets_of(algo).get(name)
    if found is None:
        others = [own for own in own_settings() if name in presets_of(own)]
        raise ConfigError(f"preset {name!r} has no settings for {algo!r}; use {' or '.join(others)}")
    return replace(Experiment(env), algorithm=settings_class(algo)(**found.algorithm), **found.experiment)


def preset_name(env_id: str) -> str | None:
    """The preset for an environment, by its id."""
    env_id = env_id.rpartition(":")[2]
    if env_id.startswith("ALE/"):
        return "atari"
    if env_id.startswith("football/"):
        return "football"
    spec = gymnasium.registry.get(env_id)
    entry_point = str(spec.entry_point) if spec else ""
    kinds = {"gymnasium.envs.mujoco": "mujoco", "gymnasium.envs.classic_control": "classic_control"}
    return next((kind for module, kind in kinds.items() if entry_point.startswith(module)), None)
