"""Settings by their ordinary names, as flags of `htsrl train` have them, whichever section they are in."""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Mapping
from typing import Any

from htsrl.config import Config
from htsrl.config.field_types import converted
from htsrl.errors import ConfigError

ENV_ARG = "env_args."
SECTIONS = ("experiment", "algorithm", "network", "placement")
NO_SETTINGS = frozenset({"env", "env_args", "algorithm", "network"})


def sections_of(config: Config) -> dict[str, Any]:
    experiment = config.experiment
    return dict(zip(SECTIONS, (experiment, experiment.algorithm, experiment.network, config.placement), strict=True))


def section_of(config: Config, name: str, where: str) -> str:
    """Which section has a setting; ConfigError with the nearest name where none does."""
    if name.startswith(ENV_ARG) and name != ENV_ARG:
        return "experiment"
    names = {section: _names(values) for section, values in sections_of(config).items()}
    for section, known in names.items():
        if name in known:
            return section
    everything = set().union(*names.values())
    near = difflib.get_close_matches(name, everything, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "docs/reference/settings.md lists them"
    raise ConfigError(f"unknown setting {name!r} in {where}; {hint}")


def type_of(config: Config, name: str) -> Any:
    """The declared type of a setting that there is; Any of an environment's argument."""
    if name.startswith(ENV_ARG):
        return Any
    return typing.get_type_hints(type(sections_of(config)[section_of(config, name, "")]))[name]


def with_values(config: Config, values: Mapping[str, Any], where: str) -> Config:
    """The configuration with these settings, each of its declared type."""
    sections = sections_of(config)
    changed: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    env_args = dict(config.experiment.env_args)
    for name, value in values.items():
        section = section_of(config, name, where)
        if name.startswith(ENV_ARG):
            env_args[name.removeprefix(ENV_ARG)] = value
        else:
            changed[section][name] = converted(value, type_of(config, name), name)
    experiment = dataclasses.replace(
        config.experiment,
        **changed["experiment"],
        env_args=env_args,
        algorithm=dataclasses.replace(sections["algorithm"], **changed["algorithm"]),
        network=dataclasses.replace(sections["network"], **changed["network"]),
    )
    return Config(experiment, dataclasses.replace(config.placement, **changed["placement"]))


def normalised(name: str) -> str:
    """A flag's name as its field is called."""
    return name.removeprefix("--").replace("-", "_") if not name.startswith(ENV_ARG) else name


def _names(section: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(section)} - NO_SETTINGS
