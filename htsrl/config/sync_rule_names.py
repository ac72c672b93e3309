"""Sync rules by name: htsrl's own, those that installed packages register, and MODULE:CLASS."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from htsrl.config.plugins import entry_points_of, import_named
from htsrl.errors import ConfigError

EVERY = "every"
"""The rule that is one learner's result: it averages gradients, not parameters."""
BUILT_IN: Mapping[str, str] = {
    EVERY: "htsrl.learners.every:Every",
    "fixed": "htsrl.learners.fixed:Fixed",
    "qsr": "htsrl.learners.qsr:Qsr",
    "selsync": "htsrl.learners.selsync:SelSync",
    "sync_switch": "htsrl.learners.sync_switch:SyncSwitch",
}
ENTRY_POINTS = "htsrl.sync_rules"
"""The group under which installed packages register rules, as `name = "module:Class"`."""
PARTS = ("check", "state_size", "reads_gradients", "learning_rate_factor", "momentum_factor", "decide")
"""Of a rule; htsrl/learners/rule.py says what they are."""


def registered() -> Mapping[str, str]:
    """The rules known by a name; htsrl's own cannot be replaced."""
    return {**BUILT_IN, **{k: v for k, v in entry_points_of(ENTRY_POINTS).items() if k not in BUILT_IN}}


def is_named_code(name: str) -> bool:
    """Whether it is MODULE:CLASS of the user's own, which nobody has installed under a name."""
    return ":" in name and name not in registered()


def load_sync_rule(name: str) -> Any:
    """The class behind a registered name, or MODULE:CLASS."""
    found: Any = import_named("sync rule", name, registered())
    if not (isinstance(found, type) and dataclasses.is_dataclass(getattr(found, "Settings", None))):
        raise ConfigError(f"sync rule {name!r} must be a class with a dataclass `Settings`, not {found!r}")
    missing = [part for part in PARTS if not hasattr(found, part)]
    if missing and name != EVERY:
        raise ConfigError(
            f"sync rule {name!r} has no {', '.join(missing)}; htsrl/learners/rule.py says what a rule has"
        )
    return found
