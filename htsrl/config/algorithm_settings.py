"""An algorithm's settings as the runtime sees them: which class they belong to, and those that it acts on itself.

An algorithm is a class with a frozen dataclass `Settings`. Those of htsrl's own algorithms are in `htsrl.config`, which
executors can read without torch; an algorithm of one's own defines its `Settings` inside the class.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from htsrl.config.plugins import entry_points_of, import_named
from htsrl.errors import ConfigError

BUILT_IN: Mapping[str, str] = {
    "a2c": "htsrl.algorithms.a2c:A2CAlgorithm",
    "ppo": "htsrl.algorithms.ppo:PPOAlgorithm",
    "sac": "htsrl.algorithms.sac:SACAlgorithm",
}
ENTRY_POINTS = "htsrl.algorithms"
"""The group under which installed packages register algorithms, as `name = "module:Class"`."""
NESTED = ".Settings"


@dataclass(frozen=True)
class NamedAlgorithm:
    """An algorithm of the user's own as a file names it, before anybody has said that its code may run."""

    name: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class CommonSettings:
    """The settings that the runtime itself acts on; an algorithm that has none of a name gets this default."""

    default_sync_interval: int = 16
    unroll_length: int | None = None
    num_minibatches: int | None = 1
    normalize_advantages: bool = False
    normalize_rewards: bool = False
    discount: float = 0.99
    optimizer: str = "adam"
    rmsprop_decay: float = 0.99
    optimizer_epsilon: float = 1e-5
    replay_capacity: int = 0
    required_network: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Any) -> CommonSettings:
        names = [own.name for own in dataclasses.fields(cls)]
        if isinstance(settings, PackedSettings):
            return settings.common
        if isinstance(settings, NamedAlgorithm):
            return cls(**{name: settings.settings[name] for name in names if name in settings.settings})
        return cls(**{name: getattr(settings, name) for name in names if hasattr(settings, name)})


@dataclass(frozen=True)
class PackedSettings:
    """Settings on their way to processes that need not import the module of their algorithm, and torch with it."""

    common: CommonSettings
    pickled: bytes

    @classmethod
    def of(cls, settings: Any) -> PackedSettings:
        return cls(CommonSettings.of(settings), cloudpickle.dumps(settings))

    def unpacked(self) -> Any:
        return cloudpickle.loads(self.pickled)


def has_minibatches(settings: Any) -> bool:
    """Whether the batch is shuffled into pieces, which then must divide it."""
    return hasattr(settings, "num_minibatches")


def registered() -> Mapping[str, str]:
    """The algorithms known by a name, as MODULE:CLASS; htsrl's own cannot be replaced."""
    installed = entry_points_of(ENTRY_POINTS)
    return {**BUILT_IN, **{name: target for name, target in installed.items() if name not in BUILT_IN}}


def load_algorithm(name: str) -> Any:
    """The class behind a registered name, or MODULE:CLASS."""
    found = import_named("algorithm", name, registered())
    if not (isinstance(found, type) and dataclasses.is_dataclass(getattr(found, "Settings", None))):
        raise ConfigError(f"algorithm {name!r} must be a class with a dataclass `Settings`, not {found!r}")
    return found


def settings_class(name: str) -> Any:
    """The settings of an algorithm; of htsrl's own without importing what computes."""
    if name in BUILT_IN:
        return _own_settings()[name]
    return load_algorithm(name).Settings


def algorithm_of(settings: Any) -> Any:
    """The class that these settings are of."""
    return load_algorithm(algorithm_name(settings))


def algorithm_name(settings: Any) -> str:
    """The name under which `load_algorithm` finds the class of these settings."""
    if isinstance(settings, NamedAlgorithm):
        return settings.name
    cls = type(settings)
    for name, own in _own_settings().items():
        if cls is own:
            return name
        if isinstance(settings, own):
            raise ConfigError(
                f"algorithm is of the class {cls.__qualname__}, derived from htsrl.{own.__name__}, and its own fields "
                f"and methods would not be used; use htsrl.{own.__name__} itself, or write an algorithm with Settings "
                "of its own (docs/extending.md)"
            )
    outer = cls.__qualname__.removesuffix(NESTED)
    if not dataclasses.is_dataclass(settings) or isinstance(settings, type) or outer == cls.__qualname__:
        raise ConfigError(
            f"algorithm={settings!r} must be htsrl.PPO(...), htsrl.A2C(...) or the Settings(...) of an algorithm of "
            "your own"
        )
    if "<" in outer:
        raise ConfigError(
            f"algorithm {outer} has no name under which worker processes and resumed runs could import it; make it a "
            "class at the top of a module"
        )
    target = f"{cls.__module__}:{outer}"
    return next((name for name, known in registered().items() if known == target), target)


def _own_settings() -> Mapping[str, type]:
    from htsrl.config import A2C, PPO, SAC

    return {"a2c": A2C, "ppo": PPO, "sac": SAC}
