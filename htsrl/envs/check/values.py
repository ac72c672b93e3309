"""What an observation and a reward must be at every step: finite, of one shape and dtype, in their space."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from htsrl.envs.check.calls import Answer, hash_of, leaves
from htsrl.envs.check.findings import Finding
from htsrl.envs.team import Team

WAYS_OUT = {
    "type": "return arrays as the space declares them",
    "dtype": "return obs.astype(...) with the dtype of the space at every step, or correct the space",
    "shape": "return one shape at every step, that of the space; pad where the number of things varies",
    "not finite": "look for a division by zero or a missing bound; no gradient survives it",
    "bounds": "widen the bounds of the space or clip the observation",
    "reward": "return one finite number; look for a division by zero",
}


class ValueWatch:
    """Looks at every answer, counts what is wrong by kind, and keeps the first of each."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self._space = env.observation_space
        self._team = env.unwrapped if isinstance(env.unwrapped, Team) else None
        self._counts: dict[str, int] = {}
        self._first: dict[str, str] = {}
        self._num_calls = 0
        self._previous: Answer | None = None
        self._first_overwritten: str | None = None

    def look(self, answer: Answer) -> None:
        self._num_calls += 1
        for kind, text in (*self._observation_faults(answer.observation), *_reward_faults(answer.reward)):
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._first.setdefault(kind, f"{text} at {answer.call.place}")
        self._look_for_overwriting(answer)

    def findings(self) -> list[Finding]:
        found = [
            Finding("fail", "values", f"{first} ({self._counts[kind]} of {self._num_calls:,} calls); {WAYS_OUT[kind]}")
            for kind, first in self._first.items()
        ]
        if not found:
            text = f"{self._num_calls:,} observations and rewards are finite, in their space, of one shape and dtype"
            found.append(Finding("ok", "values", text))
        return [*found, self._overwriting()]

    def _observation_faults(self, observation: Any) -> Iterator[tuple[str, str]]:
        if self._team is None:
            yield from observation_faults(self._space, observation, "obs")
            return
        for agent in np.flatnonzero(self._team.active):
            yield from observation_faults(self._space, observation[agent], f"obs[{agent}]")

    def _look_for_overwriting(self, answer: Answer) -> None:
        before, self._previous = self._previous, answer
        if before is None or self._first_overwritten is not None:
            return
        if any(before.call.hashes[name] != hash_of(leaf) for name, leaf in leaves(before.observation, "obs")):
            self._first_overwritten = f"{answer.call.place} overwrote the observation that the call before it returned"

    def _overwriting(self) -> Finding:
        if self._first_overwritten is None:
            return Finding("ok", "memory", "every call returns an observation of its own")
        text = f"{self._first_overwritten}; htsrl copies at once, so training is right, others must copy it themselves"
        return Finding("ok", "memory", text)


def observation_faults(space: spaces.Space[Any], value: Any, at: str) -> Iterator[tuple[str, str]]:
    """What is wrong with a value of this space, as (kind, text); the worst thing of each leaf."""
    if isinstance(space, spaces.Dict) and isinstance(value, Mapping) and set(value) == set(space.spaces):
        for key, part in space.spaces.items():
            yield from observation_faults(part, value[key], f"{at}[{key!r}]")
    elif isinstance(space, spaces.Tuple) and isinstance(value, tuple) and len(value) == len(space.spaces):
        for index, part in enumerate(space.spaces):
            yield from observation_faults(part, value[index], f"{at}[{index}]")
    elif isinstance(space, spaces.Box) and isinstance(value, np.ndarray | np.generic):
        yield from _box_faults(space, np.asarray(value), at)
    elif not space.contains(value):
        yield "type", f"{at} is {str(value)[:60]} ({type(value).__name__}), which is not in {space},"


def _box_faults(space: spaces.Box, value: np.ndarray[Any, Any], at: str) -> Iterator[tuple[str, str]]:
    if value.dtype != space.dtype:
        yield "dtype", f"{at} has dtype {value.dtype}, its space {space.dtype},"
    elif value.shape != space.shape:
        yield "shape", f"{at} has shape {value.shape}, its space {space.shape},"
    elif value.dtype.kind == "f" and not np.isfinite(value).all():
        yield "not finite", f"{at} holds {value[~np.isfinite(value)][0]}"
    elif (outside := (value < space.low) | (value > space.high)).any():
        low, high = space.low[outside][0], space.high[outside][0]
        yield "bounds", f"{at} holds {value[outside][0]}, its space allows {low} to {high},"


def _reward_faults(reward: Any) -> Iterator[tuple[str, str]]:
    try:
        finite = bool(np.isfinite(np.asarray(reward, np.float64)).all())
    except (TypeError, ValueError, OverflowError):
        finite = False
    if not finite:
        yield "reward", f"the reward is {str(reward)[:60]}"
