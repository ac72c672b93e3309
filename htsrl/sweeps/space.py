"""The search space: which values each setting may take."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

from htsrl.config import Config
from htsrl.errors import ConfigError
from htsrl.sweeps.settings import section_of, type_of

KEYS = frozenset({"low", "high", "log", "step"})
MAX_GRID = 100_000
FORMS = "{ low = 1e-5, high = 1e-2, log = true }, or a list of choices"


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both possible."""

    low: float
    high: float
    log: bool
    step: float | None
    kind: Literal["int", "float"]

    def ends(self) -> list[Any]:
        return [self.low, self.high]

    def grid(self) -> list[Any] | None:
        """All values, where there are finitely many worth the name."""
        step = 1 if self.kind == "int" and self.step is None else self.step
        if step is None or self.log:
            return None
        values = [self.low + i * step for i in range(int((self.high - self.low) / step + 1e-9) + 1)]
        return [round(value) for value in values] if self.kind == "int" else values


@dataclass(frozen=True)
class Choices:
    """One of these values."""

    values: tuple[Any, ...]

    def ends(self) -> list[Any]:
        return list(self.values)

    def grid(self) -> list[Any]:
        return list(self.values)


Dimension = Range | Choices
Space = Mapping[str, Dimension]


def parse_space(document: Any, config: Config) -> dict[str, Dimension]:
    """The dimensions by setting; ConfigError for the first that cannot work."""
    if not isinstance(document, Mapping) or not document:
        raise ConfigError(f"[space] must name at least one setting, such as learning_rate = {FORMS}")
    return {name: _dimension(name, given, config) for name, given in document.items()}


def grid_of(space: Space) -> list[dict[str, Any]]:
    """Every combination, the last setting changing fastest."""
    axes = {name: dimension.grid() for name, dimension in space.items()}
    for name, values in axes.items():
        if values is None:
            raise ConfigError(f"sampler=grid needs a list of choices, or a step, for {name}; or use sampler=random")
    size = math.prod(len(values or ()) for values in axes.values())
    if size > MAX_GRID:
        raise ConfigError(f"sampler=grid has {size:,} combinations; use {MAX_GRID:,} or fewer, or sampler=random")
    return [dict(zip(axes, values, strict=True)) for values in product(*(values or () for values in axes.values()))]


def single_changes(space: Space) -> Iterator[tuple[str, Any]]:
    """Each end of each range and each choice, by itself."""
    for name, dimension in space.items():
        yield from ((name, value) for value in dimension.ends())


def _dimension(name: str, given: Any, config: Config) -> Dimension:
    where = f"[space] {name}"
    section = section_of(config, name, "[space]")
    if name == "seed":
        raise ConfigError(f"{where}: a seed is not searched for; every trial has the `seeds` of [sweep]")
    if section == "placement":
        raise ConfigError(f"{where} is part of the placement, which changes no result; give it in [train]")
    if isinstance(given, list | tuple):
        return _choices(where, given)
    if not isinstance(given, Mapping) or not {"low", "high"} <= given.keys() <= KEYS:
        raise ConfigError(f"{where} = {given!r} must be {FORMS}; keys are low, high, log and step")
    return _range(where, given, _number_kind(type_of(config, name), given, where))


def _choices(where: str, given: Sequence[Any]) -> Choices:
    values = tuple(tuple(value) if isinstance(value, list) else value for value in given)
    if len(values) < 2:
        raise ConfigError(f"{where} = {list(given)!r} leaves no choice; give two or more, or put it in [train]")
    if any(value in values[:i] for i, value in enumerate(values)):
        raise ConfigError(f"{where} = {list(given)!r} has a value twice; leave one out")
    return Choices(values)


def _number_kind(hint: Any, given: Mapping[str, Any], where: str) -> Literal["int", "float"]:
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if float in options:
        return "float"
    if int in options:
        return "int"
    if hint is Any:
        return "int" if all(isinstance(x, int) for x in given.values()) else "float"
    raise ConfigError(f"{where} is no number; give a list of choices")


def _range(where: str, given: Mapping[str, Any], kind: Literal["int", "float"]) -> Range:
    low, high, log, step = given["low"], given["high"], given.get("log", False), given.get("step")
    for key, value in (("low", low), ("high", high), ("step", 1 if step is None else step)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ConfigError(f"{where}: {key}={value!r} must be a number")
        if kind == "int" and not float(value).is_integer():
            raise ConfigError(f"{where}: {key}={value!r} must be a whole number")
    if not isinstance(log, bool):
        raise ConfigError(f"{where}: log={log!r} must be true or false")
    if low >= high:
        raise ConfigError(f"{where}: low={low} must be below high={high}; to fix the setting put it in [train]")
    if log and low <= 0:
        raise ConfigError(f"{where}: low={low} must be above 0 with log = true")
    if step is not None and (step <= 0 or log):
        raise ConfigError(f"{where}: step={step} must be above 0, and does not go with log = true")
    as_number = int if kind == "int" else float
    return Range(as_number(low), as_number(high), log, None if step is None else as_number(step), kind)
