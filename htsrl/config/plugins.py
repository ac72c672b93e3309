"""Code of the user's own by name: registered by an installed package, or as MODULE:CLASS."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from htsrl.errors import ConfigError


@cache
def entry_points_of(group: str) -> Mapping[str, str]:
    """What installed packages register under a group, as MODULE:CLASS by name."""
    return {point.name: point.value for point in entry_points(group=group)}


def place_of(kind: str, name: str, known: Mapping[str, str]) -> tuple[str, str]:
    """Module and class behind a known name or MODULE:CLASS, nothing imported; `kind` is for error messages."""
    module, _, qualified = known.get(name, name).partition(":")
    if not (module and qualified):
        names = f"{', '.join(known)}, or MODULE:CLASS for one of your own" if known else "MODULE:CLASS"
        raise ConfigError(f"{kind} {name!r} is not known; use {names}")
    return module, qualified


def import_named(kind: str, name: str, known: Mapping[str, str]) -> Any:
    """What a known name, or MODULE:CLASS, stands for, imported."""
    module, qualified = place_of(kind, name, known)
    try:
        found: Any = importlib.import_module(module)
        for part in qualified.split("."):
            found = getattr(found, part)
    except Exception as error:  # importing runs the user's code
        raise ConfigError(f"{kind} {name!r} cannot be imported ({type(error).__name__}: {error})") from error
    return found
