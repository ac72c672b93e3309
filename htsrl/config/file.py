"""Configurations as JSON: what a run writes to its folder, and `--config` reads back."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import json
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from htsrl.config import Config, EnvFactory, Experiment, Network, NetworkFactory, Placement
from htsrl.config.algorithm_settings import (
    DEFAULT_ALGORITHM,
    NamedAlgorithm,
    algorithm_name,
    is_own,
    registered,
    settings_class,
)
from htsrl.config.field_types import converted
from htsrl.config.old_names import OF_NETWORK, note_old_name, old_names_in, with_new_names
from htsrl.config.plugins import place_of
from htsrl.config.schedule_names import registered as registered_schedules
from htsrl.config.sync_rule_names import registered as registered_sync_rules
from htsrl.errors import ConfigError
from htsrl.plain_files import DOCUMENT_LIMIT_BYTES, parsed, read_document, read_plain

CALLABLE = "callable "
"""So begins the name of an environment that was no id."""


def to_json(config: Config) -> str:
    experiment = _plain(config.experiment)
    experiment["env"] = env_name(config.experiment.env)
    experiment["env_args"] = {name: _number(value) for name, value in config.experiment.env_args.items()}
    experiment["sync_args"] = {name: _number(value) for name, value in config.experiment.sync_args.items()}
    experiment["algorithm"] = _algorithm_document(config.experiment.algorithm)
    experiment["network"]["policy"] = network_name(config.experiment.network.policy)
    return json.dumps({"experiment": experiment, "placement": _plain(config.placement)}, indent=2) + "\n"


def load_config(path: Path, env: str | EnvFactory | None = None) -> Config:
    """Read a configuration, with `env` in place of its environment if given; nothing that it names is imported.

    An unknown key or a value of the wrong type is a ConfigError that names it.
    """
    return parse_config(read_config(path), path, env)


def read_config(path: Path) -> bytes:
    try:
        return read_plain(path, DOCUMENT_LIMIT_BYTES)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"cannot read the configuration {path}: {reason}") from error


def parse_config(data: bytes, path: Path, env: str | EnvFactory | None = None) -> Config:
    """What `data`, the bytes of `path`, configure."""
    try:
        document = parsed(data)
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error
    try:
        config = from_document(document, env)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    experiment = document.get("experiment", {})
    for old in old_names_in(experiment.get("network", {})):
        note_old_name(path, old, OF_NETWORK[old])
    said = experiment.get("algorithm", {}).get("lag_correction")
    if said and (meant := getattr(config.experiment.algorithm, "lag_correction", said)) != said:
        note_old_name(path, f"lag_correction={said}", meant)
    return config


def from_document(document: Any, env: str | EnvFactory | None = None) -> Config:
    sections = _checked_mapping(document, {"experiment", "placement"}, "the configuration")
    experiment = dict(_checked_mapping(sections.get("experiment", {}), _names(Experiment), "experiment"))
    if env is None and "env" not in experiment:
        raise ConfigError("the configuration names no environment; give experiment.env")
    if env is not None:
        experiment["env"] = env
    experiment["algorithm"] = _algorithm(experiment.get("algorithm", {"name": DEFAULT_ALGORITHM}))
    experiment["network"] = build_section(Network, with_new_names(experiment.get("network", {})), "experiment.network")
    built = build_section(Experiment, experiment, "experiment")
    place_of("schedule", built.schedule, registered_schedules())
    place_of("sync rule", built.sync_rule, registered_sync_rules())
    return Config(built, placement=build_section(Placement, sections.get("placement", {}), "placement"))


def env_name(env: str | EnvFactory) -> str:
    """The id of an environment, or `module:function` of a callable that can perhaps be imported again."""
    if isinstance(env, str):
        return env
    if hasattr(env, "__qualname__"):
        return f"{CALLABLE}{env.__module__}:{env.__qualname__}"
    return f"{CALLABLE}{type(env).__qualname__} object"


def network_name(policy: str | NetworkFactory | None) -> str | None:
    """MODULE:CLASS of a network of the user's own; None where there is none, or it has no such name."""
    if policy is None or isinstance(policy, str):
        return policy
    return f"{policy.__module__}:{policy.__qualname__}" if hasattr(policy, "__qualname__") else None


def named_env(path: Path) -> str | None:
    """The environment that a configuration names, as it names it; None where it names none."""
    try:
        return str(read_document(path)["experiment"]["env"])
    except (OSError, ValueError, TypeError, KeyError):  # `load_config` says what is wrong, if anything is
        return None


def differences(
    before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "", between: str = " -> "
) -> Iterator[str]:
    """The settings in which two documents differ, as lines."""
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name, "(not there)"), now.get(name, "(not there)")
        if isinstance(old, dict) and isinstance(new, dict):
            yield from differences(old, new, f"{prefix}{name}.", between)
        elif old != new:
            yield f"{prefix}{name}: {json.dumps(old)}{between}{json.dumps(new)}"


def resolve_env(name: Any) -> Any:
    """The callable behind a name that `env_name` gave, imported; any other name as it is."""
    if not isinstance(name, str) or not name.startswith(CALLABLE):
        return name
    module, _, qualified = name.removeprefix(CALLABLE).partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in qualified.split("."):
            found = getattr(found, part)
    except Exception as error:  # importing runs the user's code
        raise ConfigError(
            f"the environment is the {name}, which cannot be imported here ({error}); "
            "call htsrl.evaluate, htsrl.resume or htsrl.train from Python with the callable itself, as env"
        ) from error
    return found


def resolve_typed_env(name: str) -> Any:
    """The same for a name that the user typed, which may also be MODULE:FUNCTION; a file's is not imported for that."""
    _, colon, qualified = name.partition(":")
    if not colon or name.startswith("callable ") or not all(part.isidentifier() for part in qualified.split(".")):
        return resolve_env(name)
    return resolve_env(f"callable {name}")


def with_settings(config: Config, settings: Mapping[str, Any]) -> Config:
    """The configuration with these fields of its experiment and its placement changed."""
    _checked_mapping(settings, _names(Experiment) | _names(Placement) | {"placement"}, "htsrl.train(...)")
    sections = (config.experiment, settings.get("placement", config.placement))
    return Config(
        *(_changed(section, settings) if dataclasses.is_dataclass(section) else section for section in sections)
    )


def _changed(section: Any, settings: Mapping[str, Any]) -> Any:
    return dataclasses.replace(section, **{name: x for name, x in settings.items() if name in _names(section)})


def resolve_algorithm(algorithm: Any) -> Any:
    """The settings behind a name, importing the module that it is in; any others as they are."""
    if not isinstance(algorithm, NamedAlgorithm):
        return algorithm
    return build_section(settings_class(algorithm.name), algorithm.settings, "experiment.algorithm")


def _algorithm_document(algorithm: Any) -> dict[str, Any]:
    settings = algorithm.settings if isinstance(algorithm, NamedAlgorithm) else _plain(algorithm)
    return {"name": algorithm_name(algorithm), **settings}


def _algorithm(section: Any) -> Any:
    if not isinstance(section, Mapping) or "name" not in section:
        example = json.dumps({"name": "ppo"})
        names = ", ".join(registered())
        raise ConfigError(f"experiment.algorithm must be an object like {example}, its name one of {names}")
    name = section["name"]
    if not isinstance(name, str):
        raise ConfigError(f'experiment.algorithm.name={name!r} must be text, such as "ppo"')
    settings = {key: value for key, value in section.items() if key != "name"}
    if not is_own(name) and (":" in name or name in registered()):
        return NamedAlgorithm(name, settings)
    cls = settings_class(name)
    upgraded = cls.of_older_file(settings) if hasattr(cls, "of_older_file") else settings
    return build_section(cls, upgraded, "experiment.algorithm")


def build_section(cls: Any, section: Any, where: str) -> Any:
    """A dataclass from names and values, each in its declared type; ConfigError for the first that does not fit."""
    values = dict(_checked_mapping(section, _names(cls), where))
    hints = _hints(cls)
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


@cache
def _hints(cls: Any) -> Mapping[str, Any]:
    return typing.get_type_hints(cls)


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
