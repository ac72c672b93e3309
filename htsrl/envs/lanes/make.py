"""From a name or a callable to a lane; whatever goes wrong on the way is one ConfigError."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from htsrl.config import EnvFactory, Experiment
from htsrl.envs.lanes.envpool import PREFIX, EnvPoolLane
from htsrl.envs.lanes.lane import LaneSimulator
from htsrl.envs.lanes.own import OwnLane
from htsrl.envs.lanes.vector import VectorLane
from htsrl.envs.make import explanation_of, import_module, import_modules
from htsrl.errors import ConfigError

WAYS = (
    "give an id with a vector entry point such as CartPole-v1, an id of EnvPool such as envpool/Pong-v5, or a callable "
    "that takes num_envs and returns a vector environment or a lane of your own (docs/lanes.md)"
)


def make_lane(experiment: Experiment) -> LaneSimulator:
    """One of the experiment's lanes."""
    return lane_of(experiment.env, experiment.env_args, experiment.imports, experiment.envs_per_simulator)


def lane_of(env: str | EnvFactory, env_args: Mapping[str, Any], imports: Sequence[str], num_envs: int) -> LaneSimulator:
    """A new lane, made after `imports` had their chance to register it."""
    import_modules(imports)
    name = env if isinstance(env, str) else getattr(env, "__qualname__", repr(env))
    try:
        made = _made(env, env_args, num_envs)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(explanation_of(error, env, name, {"num_envs": num_envs, **env_args})) from error
    return _as_lane(made, name, num_envs)


def _made(env: str | EnvFactory, env_args: Mapping[str, Any], num_envs: int) -> Any:
    if not isinstance(env, str):
        return env(num_envs=num_envs, **env_args)
    if env.startswith(PREFIX):
        return EnvPoolLane(env.removeprefix(PREFIX), env_args, num_envs)
    module, _, env_id = env.rpartition(":")
    if module:
        import_module(module)
    spec = gymnasium.registry.get(env_id)
    if spec is None or spec.vector_entry_point is None:
        what = "is not a registered environment" if spec is None else "has no vector entry point"
        raise ConfigError(f"{env_id} {what}, so it cannot be stepped in lanes; leave lanes out, or {WAYS}")
    return gymnasium.make_vec(env_id, num_envs=num_envs, vectorization_mode="vector_entry_point", **env_args)


def _as_lane(made: Any, name: str, num_envs: int) -> LaneSimulator:
    if isinstance(made, EnvPoolLane):
        return made
    if isinstance(made, VectorEnv):
        if made.num_envs != num_envs:
            made.close()
            raise ConfigError(
                f"{name} returned a vector of {made.num_envs} environments, asked for num_envs={num_envs}"
            )
        return VectorLane(made)
    needed = ("single_observation_space", "single_action_space", "reset", "step")
    missing = [part for part in needed if not hasattr(made, part)]
    if missing:
        raise ConfigError(
            f"{name} returned a {type(made).__name__} without {', '.join(missing)}, which is no lane; {WAYS}"
        )
    return OwnLane(made, num_envs)
