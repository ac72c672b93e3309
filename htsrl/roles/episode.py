"""The episode that an environment is in: its number, return and length."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from htsrl.envs.agents import Outcome
from htsrl.envs.team import Info
from htsrl.errors import RuleBroken


class Episode:
    """Counts along, unless the environment reports its true episodes itself.

    Such an environment has the attribute `reports_episodes = True`, and `info["episode"] = {"r": ..., "l": ...}` when
    one has truly ended: Atari's does, whose training episodes are lives, and football's, whose rewards are not the
    score. Where a wrapper cuts such an episode short, what was counted along since the reset is all there is.
    """

    def __init__(self, reported: bool) -> None:
        self.number = -1
        self.is_over = False
        self._reported = reported
        self._was_cut = False
        self.score = 0.0
        self.length = 0

    @classmethod
    def of(cls, env: gymnasium.Env[Any, Any]) -> Episode:
        return cls(bool(env.has_wrapper_attr("reports_episodes") and env.get_wrapper_attr("reports_episodes")))

    def begin_next(self) -> None:
        self.go_on(self.number + 1, score=0.0, length=0)

    def go_on(self, number: int, score: float, length: int) -> None:
        """Be in episode `number`, with so much behind it."""
        self.number = number
        self.is_over = False
        self._was_cut = False
        self.score = score
        self.length = length

    def add(self, outcome: Outcome) -> None:
        self.score += outcome.score
        self.length += 1
        self.is_over = outcome.over
        self._was_cut = outcome.cut

    def is_reported_in(self, info: Info) -> bool:
        return self._reported and "episode" in info

    def ended(self, info: Info) -> tuple[float, int] | None:
        """Return and length of what has ended; None where the environment says that nothing has."""
        if self.is_reported_in(info):
            return float(info["episode"]["r"]), int(info["episode"]["l"])
        return (self.score, self.length) if self._was_cut or not self._reported else None


def number_in(info: Info, key: str) -> float:
    """The number, or truth, that an environment tells under this key; not a number where it tells none."""
    value: Any = info.get(key)
    if hasattr(value, "item") and getattr(value, "size", 1) == 1:
        value = value.item()  # of NumPy, or of an array with a single number
    return float(value) if isinstance(value, Real) else math.nan


def step_info_in(info: Info, key: str, like: NDArray[Any] | np.generic) -> NDArray[Any]:
    """What an environment tells under this key at every step, as an array of this shape and dtype."""
    if key not in info:
        raise RuleBroken(f"the algorithm needs info[{key!r}] at every step, and it was not there; add it in a wrapper")
    try:
        found = np.asarray(info[key]).astype(like.dtype)
    except (TypeError, ValueError) as error:
        raise RuleBroken(f"info[{key!r}] is {info[key]!r}, which is not {like.dtype}") from error
    if found.shape != like.shape:
        raise RuleBroken(f"info[{key!r}] has shape {found.shape}, the algorithm asks for {like.shape}")
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise RuleBroken(f"info[{key!r}] is {found}, which is not finite")
    return found
