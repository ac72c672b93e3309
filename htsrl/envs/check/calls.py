"""An environment's calls, one after the other, each with the hashes of all that it returned."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import gymnasium
import numpy as np
import xxhash
from numpy.typing import NDArray

from htsrl.envs.random_actions import RandomActions, mask_among
from htsrl.envs.team import Team
from htsrl.errors import EnvironmentFailure


@dataclass(frozen=True)
class Call:
    """What one call gave, as hashes by field, and how long it took; step 0 is the reset."""

    episode: int
    step: int
    hashes: dict[str, str]
    ended: bool
    seconds: float
    cpu_seconds: float

    @property
    def place(self) -> str:
        return f"step {self.step} of episode {self.episode}" if self.step else f"the reset of episode {self.episode}"


@dataclass(frozen=True)
class Difference:
    """Where two sequences of calls part."""

    call: Call
    fields: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.call.place}, in {' and '.join(self.fields)}"


def first_difference(one: Sequence[Call], other: Sequence[Call]) -> Difference | None:
    """Of calls that both sides made; where one ends first, an `ended` differs before."""
    for a, b in zip(one, other, strict=False):
        if a.hashes != b.hashes:
            fields = sorted(name for name in a.hashes | b.hashes if a.hashes.get(name) != b.hashes.get(name))
            return Difference(a, tuple(fields))
    return None


@dataclass(frozen=True)
class Answer:
    """What a call returned, as it was returned."""

    call: Call
    observation: Any
    reward: Any = 0.0


class Console:
    """Calls one environment and takes down what comes back."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self.env = env
        self._team = env.unwrapped if isinstance(env.unwrapped, Team) else None
        self._episode = self._step = 0
        self._mask: Any = None
        self.played: list[Any] = []
        """All actions since the last reset."""

    def reset(self, seed: int, episode: int) -> Answer:
        self._episode, self._step, self.played = episode, 0, []
        watch = Stopwatch()
        try:
            observation, info = self.env.reset(seed=seed)
            times = watch.read()
            self._mask = mask_among(self.env, observation, info)
            return self._answer(times, observation)
        except BaseException as error:  # whatever it is, it came from the environment
            raise self._blame(f"reset(seed={seed})", error) from error

    def step(self, action: Any) -> Answer:
        self._step += 1
        watch = Stopwatch()
        try:
            observation, reward, terminated, truncated, info = self.env.step(action)
            times = watch.read()
            self._mask = mask_among(self.env, observation, info)
            self.played.append(action)
            return self._answer(times, observation, reward, terminated, truncated)
        except BaseException as error:
            raise self._blame(f"step({action})", error) from error

    def actions(self, seed: int) -> Iterator[Any]:
        """Random actions as a function of the seed, among those that are allowed when they are asked for."""
        random = RandomActions(self.env, seed)
        while True:
            yield random.draw(self._mask)

    def play(self, episode: int, reset_seed: int, max_steps: int, action_seed: int | None = None) -> Iterator[Answer]:
        """One episode to its end, or to `max_steps`; actions are those of the reset's seed unless told otherwise."""
        actions = self.actions(reset_seed if action_seed is None else action_seed)
        yield self.reset(reset_seed, episode)
        yield from self.go_on(islice(actions, max_steps))

    def go_on(self, actions: Iterator[Any]) -> Iterator[Answer]:
        for action in actions:
            answer = self.step(action)
            yield answer
            if answer.call.ended:
                return

    def jump_to(self, episode: int, step: int) -> None:
        """Count on from here: a saved state was restored."""
        self._episode, self._step = episode, step

    def _answer(
        self,
        times: tuple[float, float],
        observation: Any,
        reward: Any = 0.0,
        terminated: Any = False,
        truncated: Any = False,
    ) -> Answer:
        fields = {"reward": reward, "terminated": terminated, "truncated": truncated}
        ended = bool(np.any(terminated) or np.any(truncated))
        if self._team is not None:
            fields["active"] = self._team.active
            ended = not np.any(self._team.active)
        hashes = {name: hash_of(value) for name, value in fields.items()}
        hashes |= {name: hash_of(leaf) for name, leaf in leaves(observation, "obs")}
        return Answer(Call(self._episode, self._step, hashes, ended, *times), observation, reward)

    def _blame(self, what: str, error: BaseException) -> EnvironmentFailure:
        place = f"step {self._step} of episode {self._episode}" if self._step else f"episode {self._episode}"
        return EnvironmentFailure(f"{what} raised {type(error).__name__} at {place}: {error}")


class Stopwatch:
    """Started when made; CPU time is that of this process, all threads."""

    def __init__(self) -> None:
        self._cpu_start = time.process_time()
        self._start = time.perf_counter()

    def read(self) -> tuple[float, float]:
        """Seconds on the wall, and of the CPU."""
        seconds = time.perf_counter() - self._start
        return seconds, time.process_time() - self._cpu_start


def leaves(value: Any, at: str) -> Iterator[tuple[str, NDArray[Any]]]:
    """The arrays of an observation by their place in it."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from leaves(part, f"{at}[{key!r}]")
    elif isinstance(value, tuple):
        for index, part in enumerate(value):
            yield from leaves(part, f"{at}[{index}]")
    else:
        yield at, np.asarray(value)


def hash_of(value: Any) -> str:
    array = np.asarray(value)
    content = repr(value).encode() if array.dtype.hasobject else np.ascontiguousarray(array).tobytes()
    return xxhash.xxh3_64_hexdigest(f"{array.dtype.str}{array.shape}".encode() + content)
