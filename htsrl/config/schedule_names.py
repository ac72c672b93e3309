"""Schedules by name: htsrl's own, those that installed packages register, and MODULE:CLASS.

A schedule is made from the experiment by whatever its name stands for. This package is below `schedules`, so a schedule
is imported only when somebody asks what it says of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from htsrl.config.plugins import entry_points_of, import_named
from htsrl.errors import ConfigError

BUILT_IN: Mapping[str, str] = {
    "hts": "htsrl.schedules.make:hts",
    "sync": "htsrl.schedules.make:sync",
    "lockstep": "htsrl.schedules.make:lockstep",
    "async": "htsrl.schedules.make:asynchronous",
    "offline": "htsrl.schedules.make:offline",
}
OFFLINE = "offline"
"""The one of runs that learn from a dataset."""
ENTRY_POINTS = "htsrl.schedules"
"""The group under which installed packages register schedules, as `name = "module:Class"`."""
PARTS = (
    "max_lag",
    "num_storages",
    "step_barrier",
    "mixes_versions",
    "repeats",
    "answering_version",
    "may_begin",
    "num_rollouts",
    "arrays",
    "source",
)
"""Of a schedule; htsrl/schedules/schedule.py says what they are."""
MAX_LAG = 1000


class ScheduleFacts(Protocol):
    """What settings follow from."""

    @property
    def max_lag(self) -> int | None: ...

    @property
    def mixes_versions(self) -> bool: ...


def registered() -> Mapping[str, str]:
    """The schedules known by a name; htsrl's own cannot be replaced."""
    return {**BUILT_IN, **{k: v for k, v in entry_points_of(ENTRY_POINTS).items() if k not in BUILT_IN}}


def is_named_code(name: str) -> bool:
    """Whether it is MODULE:CLASS of the user's own, which nobody has installed under a name."""
    return ":" in name and name not in registered()


def load_schedule(name: str) -> Callable[[Any], Any]:
    """What makes the schedule of an experiment."""
    make: Any = import_named("schedule", name, registered())
    if not callable(make):
        raise ConfigError(f"schedule {name!r} must be a class that is made with the experiment, not {make!r}")
    return make  # type: ignore[no-any-return]


def checked_schedule(name: str, experiment: Any) -> Any:
    """The schedule of an experiment; ConfigError where one of the user's own lacks what a schedule needs."""
    make = load_schedule(name)
    if name in BUILT_IN:
        return make(experiment)
    try:
        schedule = make(experiment)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"schedule {name!r} could not be made ({type(error).__name__}: {error}); it is called with the experiment"
        ) from error
    if missing := [part for part in PARTS if not hasattr(schedule, part)]:
        raise ConfigError(
            f"schedule {name!r} has no {', '.join(missing)}; htsrl/schedules/schedule.py says what a schedule has"
        )
    _check_lag(name, schedule)
    return schedule


def _check_lag(name: str, schedule: Any) -> None:
    lag, storages = schedule.max_lag, schedule.num_storages
    if lag is None:
        return
    if not isinstance(lag, int) or not 0 <= lag <= MAX_LAG:
        raise ConfigError(f"schedule {name!r} has max_lag={lag!r}, which must be None or from 0 to {MAX_LAG}")
    if storages < max(lag + 1, 2):
        raise ConfigError(
            f"schedule {name!r} has num_storages={storages}, and max_lag={lag} needs {max(lag + 1, 2)} or more"
        )
