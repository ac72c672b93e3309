"""Whether a value fits the declared type of a dataclass field, and the value in that type."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from htsrl.errors import ConfigError


def converted(value: Any, hint: Any, where: str) -> Any:
    """`value` as `hint` wants it: numbers of any kind, text for paths, lists for tuples; else a ConfigError."""
    if isinstance(value, np.generic):
        value = value.item()
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for option in options:
        fits, result = _fit(value, option, where)
        if fits:
            return result
    allowed = " or ".join(_type_name(option) for option in options)
    raise ConfigError(f"{where}={value!r} must be {allowed}")


def _fit(value: Any, option: Any, where: str) -> tuple[bool, Any]:
    origin = typing.get_origin(option)
    if option is Any:
        return True, value
    if origin is typing.Literal:
        return value in typing.get_args(option), value
    if option is Path:
        return isinstance(value, str | Path), Path(value) if isinstance(value, str) else value
    if option is float and isinstance(value, int | float) and not isinstance(value, bool):
        return True, float(value)
    if option is int and isinstance(value, bool):
        return False, None
    if origin is tuple and isinstance(value, list | tuple):
        element = typing.get_args(option)[0]
        return True, tuple(converted(item, element, f"{where}[{i}]") for i, item in enumerate(value))
    return isinstance(value, origin or option), value


def _type_name(option: Any) -> str:
    if typing.get_origin(option) is typing.Literal:
        return ", ".join(map(str, typing.get_args(option)))
    names = {type(None): "None", int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    origin = typing.get_origin(option) or option
    if origin is tuple:
        return "a list"
    if origin is Mapping:
        return "an object of names and values"
    return names.get(option) or str(getattr(origin, "__name__", origin))
