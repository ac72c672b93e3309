"""From a name or a callable to an environment; whatever goes wrong on the way is one ConfigError."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator

import htsrl.envs.puzzles
import htsrl.envs.toy  # noqa: F401  (both register their environments)
from htsrl.config import NO_ENV, EnvFactory
from htsrl.envs.atari import make_ale
from htsrl.envs.football import make_football
from htsrl.envs.minigrid import make_minigrid
from htsrl.envs.nethack import make_nethack
from htsrl.envs.pettingzoo import make_pettingzoo
from htsrl.envs.vizdoom import make_vizdoom
from htsrl.envs.waiting import NO_DEADLINES, Deadlines, waited_for
from htsrl.errors import ConfigError

FAMILIES: Mapping[str, Callable[..., gymnasium.Env[Any, Any]]] = {
    "ALE/": make_ale,
    "football/": make_football,
    "MiniGrid-": make_minigrid,
    "BabyAI-": make_minigrid,
    "Vizdoom": make_vizdoom,
    "NetHack": make_nethack,
    "pettingzoo/": make_pettingzoo,
}
"""Ids that begin like this are made by a function that brings the simulator to what policies can see and do."""
IMPORT_HINT = "if a package registers it, name that: --import my_package (in Python imports=('my_package',))"


def make_env(
    env: str | EnvFactory, env_args: Mapping[str, Any], imports: Sequence[str], deadlines: Deadlines = NO_DEADLINES
) -> gymnasium.Env[Any, Any]:
    """A new environment, made after `imports` had their chance to register it; its methods are plain ones."""
    import_modules(imports)
    create, name = _creator(env)
    try:
        made = create(**env_args)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(explanation_of(error, env, name, env_args)) from error
    if not isinstance(made, gymnasium.Env):
        raise ConfigError(f"{name} returned {_describe_stranger(made)}")
    return waited_for(made, deadlines)


def is_of_a_family(env: str | EnvFactory) -> bool:
    """Whether htsrl wraps it itself, and its own tests see to it that it repeats."""
    return isinstance(env, str) and env.rpartition(":")[2].startswith(tuple(FAMILIES))


def import_modules(modules: Sequence[str]) -> None:
    """Import what the user named with `--import`."""
    if isinstance(modules, str):
        raise ConfigError(f"imports={modules!r} is one string, not a list of modules; use imports=({modules!r},)")
    for module in modules:
        import_module(module)


def _creator(env: str | EnvFactory) -> tuple[Callable[..., Any], str]:
    """What to call with `env_args`, and what to call it in messages."""
    if env == NO_ENV:
        raise ConfigError(
            "there is no environment to play in: the run learned from a dataset. Name one: `htsrl train ENV_ID "
            "--source ...` for evaluations beside training, --env ENV_ID (in Python env=) for later ones"
        )
    if isinstance(env, str):
        module, _, env_id = env.rpartition(":")
        if module:
            import_module(module)
        for prefix, make in FAMILIES.items():
            if env_id.startswith(prefix):
                return partial(make, env_id), env_id
        return partial(gymnasium.make, env_id, disable_env_checker=True), env_id
    if not callable(env):
        raise ConfigError(f"env={env!r} is neither a Gymnasium id nor a callable that returns an environment")
    return env, getattr(env, "__qualname__", repr(env))


def import_module(module: str) -> None:
    try:
        importlib.import_module(module)
    # A script without a __main__ guard may well exit when imported, which would end htsrl without a word.
    except (Exception, SystemExit) as error:
        way_out = _install_hint(error) or f"; make `import {module}` work in Python first"
        raise ConfigError(f"module {module!r} cannot be imported: {_named(error)}{way_out}") from error


def _install_hint(error: BaseException) -> str:
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    return f"; install {missing}, or put its folder on PYTHONPATH" if missing else ""


def explanation_of(error: Exception, env: str | EnvFactory, name: str, env_args: Mapping[str, Any]) -> str:
    """What the user did, what came of it, and what to do instead."""
    if isinstance(error, gymnasium.error.DependencyNotInstalled):
        return f"{name} needs a package that is not installed: {error}"
    if isinstance(env, str) and isinstance(error, gymnasium.error.Error) and name not in gymnasium.registry:
        return _unknown_id(name)
    if isinstance(error, ImportError):
        return f"{name} needs something that cannot be imported: {_named(error)}{_install_hint(error)}"
    # Gymnasium repeats a constructor's TypeError with the original as its cause; its own TypeErrors have none.
    if isinstance(error, TypeError) and (isinstance(error.__cause__, TypeError) or not isinstance(env, str)):
        return f"{name} does not take env_args={dict(env_args)}: {error.__cause__ or error}{_accepted(env, name)}"
    return f"{name} could not be made with env_args={dict(env_args)}: {_named(error)}"


def _unknown_id(env_id: str) -> str:
    by_lower_case = {known.lower(): known for known in gymnasium.registry}
    stem = env_id.rpartition("-v")[0]
    versions = [known for known in gymnasium.registry if stem and known.rpartition("-v")[0] == stem]
    near = [by_lower_case[match] for match in difflib.get_close_matches(env_id.lower(), by_lower_case)]
    if versions:
        return f"{env_id!r} is not a version of {stem} that is registered; use {' or '.join(versions)}"
    question = f"; did you mean {' or '.join(near)}?" if near else ";"
    return f"{env_id!r} is not a registered environment{question} {IMPORT_HINT}"


def _accepted(env: str | EnvFactory, name: str) -> str:
    """The arguments that the constructor would have taken, where Python can tell."""
    spec = gymnasium.registry.get(name)
    constructor: Any = env if not isinstance(env, str) else spec and spec.entry_point
    try:
        signature = inspect.signature(load_env_creator(constructor) if isinstance(constructor, str) else constructor)
    except (TypeError, ValueError):
        return ""
    names = [str(parameter.replace(annotation=inspect.Parameter.empty)) for parameter in signature.parameters.values()]
    return f"; it takes {', '.join(names) or 'no arguments'}"


def _describe_stranger(made: object) -> str:
    if made is None:
        return "None; does the function return the environment that it makes?"
    if isinstance(made, type):
        return f"the class {made.__name__}, not an environment; return {made.__name__}(...)"
    if isinstance(made, gymnasium.vector.VectorEnv):
        return f"a vector of environments ({type(made).__name__}); return a single one, num_envs says how many to make"
    if any(base.__module__.partition(".")[0] == "gym" for base in type(made).__mro__):
        return f"an environment of the old Gym ({type(made).__name__}); convert it with the package shimmy"
    return f"something of type {type(made).__name__}, which is no gymnasium.Env; derive it from that"


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
