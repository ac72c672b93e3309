"""Ours behind the ids that ale-py registers."""

from __future__ import annotations

import inspect
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from htsrl.envs.atari.environment import Atari
from htsrl.envs.atari.settings import import_simulator
from htsrl.errors import ConfigError

ARGUMENTS_OF_ALE_PY = {
    "obs_type", "frameskip", "mode", "difficulty", "continuous", "continuous_action_threshold", "sound_obs",
    "max_num_frames_per_episode",
}  # fmt: skip


def make_ale(env_id: str, **env_args: Any) -> gymnasium.Env[Any, Any]:
    """The game that ale-py registers as `env_id`: an `Atari` of ours, unless an argument is one of ale-py's own."""
    import_simulator()
    spec = gymnasium.registry.get(env_id)
    if spec is None or ARGUMENTS_OF_ALE_PY & env_args.keys():
        return gymnasium.make(env_id, disable_env_checker=True, **env_args)
    options = list(inspect.signature(Atari).parameters)[1:]
    if unknown := env_args.keys() - options:
        raise ConfigError(f"{env_id} does not take {', '.join(sorted(unknown))}; it takes {', '.join(options)}")
    arguments = {"game": spec.kwargs["game"], **env_args}
    made = Atari(**arguments)
    made.spec = EnvSpec(env_id, entry_point="htsrl.envs.atari:Atari", kwargs=arguments)
    return made
