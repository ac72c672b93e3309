"""When a trial is given up: by what it and earlier trials had reached after so many steps, never by the clock."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from htsrl.errors import ConfigError

Rule = Literal["none", "median", "halving"]
KEYS = frozenset({"rule", "at", "every", "min_trials", "factor"})


@dataclass(frozen=True)
class Pruning:
    """The rule, and the steps at which it looks."""

    rule: Rule = "none"
    at: tuple[int, ...] = ()
    min_trials: int = 4
    """So many earlier trials must have a value at the step before anything is given up."""
    factor: int = 3
    """Of halving: one trial in so many continues."""

    def gives_up(self, value: float, earlier: Sequence[float], maximize: bool) -> bool:
        """Whether a trial with this value goes no further, given those of earlier trials at the same step."""
        if self.rule == "none" or len(earlier) < self.min_trials:
            return False
        sign = 1 if maximize else -1
        mine, theirs = sign * value, [sign * x for x in earlier]
        if self.rule == "median":
            return mine < statistics.median(theirs)
        places = math.ceil((len(theirs) + 1) / self.factor)
        return sum(x > mine for x in theirs) >= places


def parse_pruning(document: Any, total_steps: int) -> Pruning:
    """ConfigError for the first value that cannot work."""
    if document is None:
        return Pruning()
    if not isinstance(document, Mapping) or not document.keys() <= KEYS:
        raise ConfigError(f"[pruning] has the keys {', '.join(sorted(KEYS))}, not {document!r}")
    rule = document.get("rule", "median")
    if rule not in ("none", "median", "halving"):
        raise ConfigError(f"[pruning] rule={rule!r} is not known; use median, halving or none")
    defaults = Pruning()
    min_trials = _whole("min_trials", document.get("min_trials", defaults.min_trials), at_least=1)
    factor = _whole("factor", document.get("factor", defaults.factor), at_least=2)
    return Pruning(rule, _steps(document, total_steps) if rule != "none" else (), min_trials, factor)


def _steps(document: Mapping[str, Any], total_steps: int) -> tuple[int, ...]:
    if ("at" in document) == ("every" in document):
        raise ConfigError("[pruning] needs either at, a list of steps, or every, a number of steps")
    if "every" in document:
        every = _whole("every", document["every"], at_least=1)
        steps = list(range(every, total_steps, every))
    else:
        given = document["at"]
        steps = [_whole("at", step, at_least=1) for step in (given if isinstance(given, list | tuple) else [given])]
    if not steps or steps != sorted(set(steps)) or steps[-1] >= total_steps:
        raise ConfigError(f"[pruning] looks at steps {steps}; they must rise and be below total_steps={total_steps}")
    return tuple(steps)


def _whole(name: str, value: Any, at_least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise ConfigError(f"[pruning] {name}={value!r} must be a whole number, {at_least} or more")
    return value
