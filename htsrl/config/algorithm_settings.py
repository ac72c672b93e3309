"""An algorithm's settings as the runtime sees them: which class they belong to, and those that it acts on itself.

An algorithm is a class with a frozen dataclass `Settings`. Each of htsrl's own is a folder in `htsrl/algorithms`, whose
settings are apart from what computes, so that executors can read them without torch; nobody lists these folders. An
algorithm of one's own may define its `Settings` inside the class.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import cloudpickle

from htsrl.config.plugins import entry_points_of, import_named
from htsrl.errors import ConfigError

OWN_ALGORITHMS = "htsrl.algorithms"
"""Every package in it is an algorithm, and exports its settings alone. These say the `name` that it is known by, as
which MODULE:CLASS the `algorithm` is found, what its `metrics` mean, and may have `presets`, `rules` for fields of
theirs, and `main_settings`, those that `--help` shows at first."""
DEFAULT_ALGORITHM = "ppo"
ENTRY_POINTS = "htsrl.algorithms"
"""The group under which installed packages register algorithms, as `name = "module:Class"`."""
NESTED = ".Settings"


@cache
def own_settings() -> Mapping[str, Any]:
    """The settings of htsrl's own algorithms by name."""
    places = importlib.import_module(OWN_ALGORITHMS).__path__
    names = sorted(module.name for module in pkgutil.iter_modules(places) if module.ispkg)
    modules = [importlib.import_module(f"{OWN_ALGORITHMS}.{name}") for name in names]
    exported = [getattr(module, name) for module in modules for name in module.__all__]
    return {settings.name: settings for settings in exported}


def is_own(name: str) -> bool:
    """Whether it is an algorithm of htsrl's own."""
    return name in own_settings()


def default_algorithm() -> Any:
    return own_settings()[DEFAULT_ALGORITHM]()


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
    learns_offline: bool = False
    priority_exponent: float = 0.0
    minibatch_size: int = 1
    update_to_data: float = 1.0
    required_network: Mapping[str, Any] = field(default_factory=dict)
    own_exploration: bool = False

    @classmethod
    def of(cls, settings: Any) -> CommonSettings:
        names = [own.name for own in dataclasses.fields(cls)]
        if isinstance(settings, PackedSettings):
            return settings.common
        if isinstance(settings, NamedAlgorithm):  # a file has no say in whether code runs when a policy is built
            given = {name: settings.settings[name] for name in names if name in settings.settings}
            return cls(**given | {"own_exploration": False})
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


def unpacked(settings: Any) -> Any:
    """The settings themselves, wherever they came from; those on their way import the module of their algorithm."""
    return settings.unpacked() if isinstance(settings, PackedSettings) else settings


def has_minibatches(settings: Any) -> bool:
    """Whether the batch is shuffled into pieces, which then must divide it."""
    return hasattr(settings, "num_minibatches")


def registered() -> Mapping[str, str]:
    """The algorithms known by a name, as MODULE:CLASS; htsrl's own cannot be replaced."""
    installed = entry_points_of(ENTRY_POINTS)
    own = {name: str(settings.algorithm) for name, settings in own_settings().items()}
    return {**own, **{name: target for name, target in installed.items() if name not in own}}


def load_algorithm(name: str) -> Any:
    """The class behind a registered name, or MODULE:CLASS."""
    found = import_named("algorithm", name, registered())
    if not (isinstance(found, type) and dataclasses.is_dataclass(getattr(found, "Settings", None))):
        raise ConfigError(f"algorithm {name!r} must be a class with a dataclass `Settings`, not {found!r}")
    return found


def settings_class(name: str) -> Any:
    """The settings of an algorithm; of htsrl's own without importing what computes."""
    if is_own(name):
        return own_settings()[name]
    return load_algorithm(name).Settings


def algorithm_of(settings: Any) -> Any:
    """The class that these settings are of."""
    return load_algorithm(algorithm_name(settings))


def algorithm_name(settings: Any) -> str:
    """The name under which `load_algorithm` finds the class of these settings."""
    if isinstance(settings, NamedAlgorithm):
        return settings.name
    cls = type(settings)
    for name, own in own_settings().items():
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
