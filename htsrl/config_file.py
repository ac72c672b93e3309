"""Configurations as JSON: what a run writes to its folder, and `--config` reads back."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import json
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from htsrl.config import ALGORITHMS, PPO, Config, EnvFactory, Experiment, Network, NetworkFactory, Placement
from htsrl.errors import ConfigError
from htsrl.field_types import converted

_ALGORITHM_NAMES = ", ".join(ALGORITHMS)
PPO_SETTINGS_BEFORE_LAG_CORRECTION = 19
"""A run's folder has all that there were. One without that choice was begun when PPO corrected nothing."""


def to_json(config: Config) -> str:
    experiment = _plain(config.experiment)
    experiment["env"] = env_name(config.experiment.env)
    experiment["env_args"] = {name: _number(value) for name, value in config.experiment.env_args.items()}
    experiment["algorithm"] = {"name": config.experiment.algorithm.name, **experiment["algorithm"]}
    experiment["network"]["policy"] = network_name(config.experiment.network.policy)
    return json.dumps({"experiment": experiment, "placement": _plain(config.placement)}, indent=2) + "\n"


def load_config(path: Path, env: str | EnvFactory | None = None) -> Config:
    """Read a configuration, with `env` in place of its environment if given.

    An unknown key or a value of the wrong type is a ConfigError that names it.
    """
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error
    try:
        return from_document(document, env)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def from_document(document: Any, env: str | EnvFactory | None = None) -> Config:
    sections = _checked_mapping(document, {"experiment", "placement"}, "the configuration")
    experiment = dict(_checked_mapping(sections.get("experiment", {}), _names(Experiment), "experiment"))
    if env is None and "env" not in experiment:
        raise ConfigError("the configuration names no environment; give experiment.env")
    experiment["env"] = resolve_env(experiment["env"]) if env is None else env
    experiment["algorithm"] = _algorithm(experiment.get("algorithm", {"name": "ppo"}))
    experiment["network"] = _build(Network, experiment.get("network", {}), "experiment.network")
    return Config(
        experiment=_build(Experiment, experiment, "experiment"),
        placement=_build(Placement, sections.get("placement", {}), "placement"),
    )


def env_name(env: str | EnvFactory) -> str:
    """The id of an environment, or `module:function` of a callable that can perhaps be imported again."""
    if isinstance(env, str):
        return env
    if hasattr(env, "__qualname__"):
        return f"callable {env.__module__}:{env.__qualname__}"
    return f"callable {type(env).__qualname__} object"


def network_name(policy: str | NetworkFactory | None) -> str | None:
    """MODULE:CLASS of a network of the user's own; None where there is none, or it has no such name."""
    if policy is None or isinstance(policy, str):
        return policy
    return f"{policy.__module__}:{policy.__qualname__}" if hasattr(policy, "__qualname__") else None


def named_env(path: Path) -> str | None:
    """The environment that a configuration names, as it names it; None where it names none."""
    try:
        return str(json.loads(path.read_bytes())["experiment"]["env"])
    except (OSError, ValueError, TypeError, KeyError):  # `load_config` says what is wrong, if anything is
        return None


def differences(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The settings in which two documents differ, as lines."""
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name, "(not there)"), now.get(name, "(not there)")
        if isinstance(old, dict) and isinstance(new, dict):
            yield from differences(old, new, f"{prefix}{name}.")
        elif old != new:
            yield f"{prefix}{name}: {json.dumps(old)} -> {json.dumps(new)}"


def resolve_env(name: Any) -> Any:
    """The callable behind a name that `env_name` gave; any other name as it is."""
    if not isinstance(name, str) or not name.startswith("callable "):
        return name
    module, _, qualified = name.removeprefix("callable ").partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in qualified.split("."):
            found = getattr(found, part)
    except Exception as error:  # importing runs the user's code
        raise ConfigError(
            f"the environment was the {name}, which cannot be imported here ({error}); "
            "call htsrl.evaluate, htsrl.resume or htsrl.train from Python with the callable itself, as env"
        ) from error
    return found


def _algorithm(section: Any) -> Any:
    if not isinstance(section, Mapping) or "name" not in section:
        example = json.dumps({"name": "ppo"})
        raise ConfigError(f"experiment.algorithm must be an object like {example}, its name one of {_ALGORITHM_NAMES}")
    name = section["name"]
    if name not in ALGORITHMS:
        raise ConfigError(f"experiment.algorithm.name={name!r} must be one of {_ALGORITHM_NAMES}")
    settings = {key: value for key, value in section.items() if key != "name"}
    if name == PPO.name and len(settings) >= PPO_SETTINGS_BEFORE_LAG_CORRECTION:
        settings.setdefault("lag_correction", "none")
    return _build(ALGORITHMS[name], settings, "experiment.algorithm")


def _build(cls: Any, section: Any, where: str) -> Any:
    values = dict(_checked_mapping(section, _names(cls), where))
    hints = typing.get_type_hints(cls)
    for name, value in values.items():
        values[name] = converted(value, hints[name], f"{where}.{name}")
    return cls(**values)


def _checked_mapping(section: Any, known: set[str], where: str) -> Mapping[str, Any]:
    if not isinstance(section, Mapping):
        raise ConfigError(f"{where} must be an object of names and values, not {section!r}")
    for key in section:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}"
            raise ConfigError(f"unknown key {key!r} in {where}; {hint}")
    return section


def _names(cls: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(cls)}


def _number(value: Any) -> Any:
    """NumPy's numbers as Python's own."""
    return value.item() if isinstance(value, np.generic) else value


def _plain(value: Any) -> Any:
    """Dataclasses as dictionaries, paths as text; everything else is what JSON takes as it is."""
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return str(value) if isinstance(value, Path) else value
