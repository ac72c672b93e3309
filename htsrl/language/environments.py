"""Environments of several turns: text in; text out, reward and done, each step with a deadline and a named failure.

An environment is a class; an instance is one episode. It begins with a line of the prompts' file, and must be a
function of that line and of the texts that it is given: one whose process has died is brought back by giving it its
texts again, and what it answers is compared with what it had answered. A step that raises, takes too long, or returns
something else is tried again with a new instance, and then the episode has failed: it is left out of the loss and
counted. Plain steps are called one at a time, `async` ones all at once.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import numbers
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from htsrl.config.plugins import import_named
from htsrl.errors import ConfigError
from htsrl.language.event_loop import LOOK_SECONDS, EventLoop
from htsrl.processes.calls import CallFailed, TooSlow, awaited_within, on_thread


class Answer(NamedTuple):
    """What an environment makes of a turn."""

    text: str
    reward: float
    done: bool


class Turn(NamedTuple):
    """One that was answered: what the model wrote, and the answer as tokens, for a later answer to be compared with."""

    text: str
    answer_tokens: tuple[int, ...]
    reward: float


@dataclass(frozen=True)
class Asked:
    """A turn to be answered."""

    key: tuple[int, int]
    """Column and ordinal: whose episode it is."""
    columns: Mapping[str, Any]
    """The line of the prompts' file that the episode begins with."""
    history: Sequence[Turn]
    """The turns before."""
    text: str
    tokens_of: Callable[[str], tuple[int, ...]]
    """How an answer is shown to the model."""


@dataclass(frozen=True)
class Answered:
    """What came of asking: an answer, or why there is none."""

    answer: Answer | None
    problem: str = ""


@dataclass
class _Episode:
    """An instance of the user's class, and how many turns it has answered."""

    instance: Any
    num_turns: int


class _Unusable(Exception):
    """An environment did what it must not; the message says what."""


class Environments:
    """All episodes of a generator."""

    def __init__(self, name: str, seconds: float, attempts: int) -> None:
        self.name = name
        self.kind = environment_class(name)
        self._seconds = seconds
        self._attempts = attempts
        self._accepted = _accepted(self.kind)
        self._is_async = inspect.iscoroutinefunction(self.kind.step)
        self._live: dict[tuple[int, int], _Episode] = {}
        self._one_at_a_time = asyncio.Lock()
        self._loop = EventLoop("environments", seconds)

    def ask(self, asked: Asked) -> Future[Answered]:
        """What the environment will say; its deadlines are its own."""
        return self._loop.run(self._answer(asked))

    def look(self) -> None:
        """For one who waits for an answer: raises where none can come."""
        self._loop.look()

    def forget(self, key: tuple[int, int]) -> None:
        """Its episode is over."""
        self._loop.call(self._close, key)

    def close(self) -> None:
        """All episodes are over."""
        self._loop.call(self._close_all)
        self._loop.close()

    async def _answer(self, asked: Asked) -> Answered:
        problem = ""
        for _ in range(self._attempts):
            try:
                episode = await self._brought_back(asked)
                answer = await self._step(episode, asked.text)
                return Answered(answer)
            except TooSlow:
                problem = f"took longer than environment_seconds={self._seconds:g}"
            except (_Unusable, CallFailed) as error:
                problem = str(error)
            except Exception as error:  # of what it returned: the user's, too
                problem = str(CallFailed(error))
            self._close(asked.key)
        return Answered(None, problem)

    async def _brought_back(self, asked: Asked) -> _Episode:
        """The episode where it stands: kept, or made again from its texts."""
        episode = self._live.get(asked.key)
        if episode is not None and episode.num_turns == len(asked.history):
            return episode
        arguments = {
            name: value for name, value in asked.columns.items() if self._accepted is None or name in self._accepted
        }
        episode = self._live[asked.key] = _Episode(await self._on_thread(lambda: self.kind(**arguments)), 0)
        for turn in asked.history:
            answer = await self._step(episode, turn.text)
            if answer.done or (asked.tokens_of(answer.text), answer.reward) != (turn.answer_tokens, turn.reward):
                raise _Unusable(
                    f"does not reproduce: given turn {episode.num_turns} of an episode again, it answered {answer} "
                    f"where its reward had been {turn.reward:g} and its answer another; make it a function of its line "
                    "and the texts it is given"
                )
        return episode

    async def _step(self, episode: _Episode, text: str) -> Answer:
        if self._is_async:
            returned = await awaited_within(episode.instance.step(text), self._seconds)
        else:
            returned = await self._on_thread(lambda: episode.instance.step(text))
        episode.num_turns += 1
        return checked_answer(returned)

    async def _on_thread(self, call: Callable[[], Any]) -> Any:
        """One at a time."""
        async with self._one_at_a_time:
            return await awaited_within(asyncio.wrap_future(on_thread(call, f"environment {self.name}")), self._seconds)

    def _close_all(self) -> None:
        for key in list(self._live):
            self._close(key)

    def _close(self, key: tuple[int, int]) -> None:
        """One that has a `close` may free what it holds; what comes of it interests nobody."""
        episode = self._live.pop(key, None)
        close = getattr(episode.instance, "close", None) if episode else None
        if callable(close):
            threading.Thread(target=_quietly, args=(close,), daemon=True).start()


def _quietly(call: Callable[[], Any]) -> None:
    try:
        call()
    except Exception:
        pass


def environment_class(name: str) -> Any:
    """The user's class; ConfigError where it is none."""
    kind = import_named("environment", name, {})
    if not (inspect.isclass(kind) and callable(getattr(kind, "step", None))):
        raise ConfigError(
            f"environment {name!r} must be a class with `step(self, text)`, which returns text, reward and done; an "
            "instance is one episode"
        )
    return kind


def checked_answer(returned: Any) -> Answer:
    """Text, a finite number, and a truth value."""
    if not (isinstance(returned, tuple) and len(returned) == 3):
        raise _Unusable(f"returned {_shown(returned)} instead of (text, reward, done)")
    text, reward, done = returned
    if not isinstance(text, str):
        raise _Unusable(f"answered {_shown(text)}, which is no text")
    if not isinstance(reward, numbers.Real) or not math.isfinite(reward):
        raise _Unusable(f"gave the reward {_shown(reward)}, which is no finite number")
    return Answer(text, float(np.float32(reward)), bool(done))  # as it is stored


def check_environment(environments: Environments, columns: Mapping[str, Any], text: str) -> None:
    """Begin one episode and give it a turn, before anything starts; ConfigError where it cannot be used."""
    asked = Asked((-1, -1), columns, [], text, lambda answer: ())
    answer = environments.ask(asked)
    while not wait([answer], LOOK_SECONDS).done:
        environments.look()
    answered = answer.result()
    environments.forget(asked.key)
    if answered.answer is None:
        raise ConfigError(
            f"environment {environments.name!r}, given {text[:60]!r} as its first turn, {answered.problem}; it must "
            "take the columns of a prompt's line by name, any text in `step`, and return (text, reward, done)"
        )


def _accepted(kind: Any) -> set[str] | None:
    """The columns that a class takes by name; None where it takes all."""
    try:
        parameters = inspect.signature(kind).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return {parameter.name for parameter in parameters}


def _shown(value: Any) -> str:
    return f"{type(value).__name__} {str(value)[:60]!r}" if value is not None else "None"
