"""Refuses settings that are wrong each by itself: of another type, not finite, or outside of their rule."""

from __future__ import annotations

import dataclasses
import json
import math
import typing
from collections.abc import Mapping
from typing import Any

import numpy as np

from htsrl.config.field_types import converted
from htsrl.config.rules import RULES, Rule
from htsrl.errors import ConfigError


def checked_fields(section: Any) -> Any:
    """Every field of its type, finite, and within its rule."""
    hints = typing.get_type_hints(type(section))
    rules = RULES | _own_rules(section)
    values = {}
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if field.name not in ("env", "algorithm", "network"):
            value = converted(value, hints[field.name], field.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{field.name}={value} must be finite")
        allowed, rule = rules.get(field.name, (None, ""))
        if allowed is not None and value is not None and not allowed(value):
            raise ConfigError(f"{field.name}={value} must be {rule}")
        values[field.name] = value
    return dataclasses.replace(section, **values)


def _own_rules(section: Any) -> dict[str, Rule]:
    """Those that an algorithm's settings declare for fields of theirs."""
    is_field = "rules" in {field.name for field in dataclasses.fields(section)}
    return {} if is_field else dict(getattr(section, "rules", {}))


def checked_args(field: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that the run's config.json can hold."""
    way_out = ", or pass a callable that closes over it as env" if field == "env_args" else ""
    arguments = {name: x.item() if isinstance(x, np.generic) else x for name, x in given.items()}
    for name, value in arguments.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{field}[{name!r}]={value!r} cannot be written to the run's config.json ({error}); "
                f"use numbers, text, lists and objects{way_out}"
            ) from error
    return arguments
