"""Rewards: functions of the user's, each call with a deadline; what goes wrong is a named outcome, never a hang.

A reward function takes what TRL's take: `prompts`, `completions`, and every column of the prompts' file by name, as
lists; it returns a number for each completion. Plain functions are called one at a time, from one thread; `async` ones
all at once. A call that raises, takes too long, or returns something else than finite numbers is tried again, and then
its completions are left out of the loss and counted.
"""

from __future__ import annotations

import inspect
import math
import numbers
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from htsrl.config.plugins import import_named
from htsrl.errors import ConfigError
from htsrl.language.event_loop import LOOK_SECONDS, EventLoop
from htsrl.processes.calls import CallFailed, TooSlow, answer_with, awaited_within, on_thread, result_within

Scores = NDArray[np.float32]
"""One for each completion; not a number where there is none."""


@dataclass(frozen=True)
class Texts:
    """Completions to score, with all that is known of their prompts."""

    prompts: Sequence[Any]
    """As the file has them: text, or messages."""
    prompt_texts: Sequence[str]
    completions: Sequence[str]
    columns: Sequence[Mapping[str, Any]]

    def __len__(self) -> int:
        return len(self.completions)

    def arguments(self) -> dict[str, Any]:
        """As a reward function is called with them; a completion of messages is a message."""
        completions = [
            text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]
            for prompt, text in zip(self.prompts, self.completions, strict=True)
        ]
        names = dict.fromkeys(name for columns in self.columns for name in columns if name != "prompt")
        others = {name: [columns.get(name) for columns in self.columns] for name in names}
        return {**others, "prompts": list(self.prompts), "completions": completions}


@dataclass(frozen=True)
class Outcome:
    """What came of scoring some completions with one reward."""

    scores: Scores
    problem: str = ""
    """Why some of them have no score."""


class Reward(Protocol):
    """What gives completions a score."""

    name: str
    attempts: Attempts

    @property
    def is_async(self) -> bool:
        """Whether `score_async` is to be asked."""

    def score(self, texts: Texts) -> Outcome: ...

    async def score_async(self, texts: Texts) -> Outcome: ...


@dataclass(frozen=True)
class Attempts:
    """How long a call may take, and how often it is made."""

    seconds: float
    count: int

    def ask(self, name: str, call: Callable[[], Outcome], num_texts: int) -> Outcome:
        """Until there is an answer; each call on a thread of its own."""
        outcome = Outcome(no_scores(num_texts))
        for _ in range(self.count):
            try:
                outcome = result_within(on_thread(call, f"reward {name}"), self.seconds)
            except (TooSlow, CallFailed) as error:
                outcome = self._failed(error, num_texts)
            if not outcome.problem:
                break
        return outcome

    async def ask_async(self, call: Callable[[], Awaitable[Outcome]], num_texts: int) -> Outcome:
        """Until there is an answer."""
        outcome = Outcome(no_scores(num_texts))
        for _ in range(self.count):
            try:
                outcome = await awaited_within(call(), self.seconds)
            except (TooSlow, CallFailed) as error:
                outcome = self._failed(error, num_texts)
            if not outcome.problem:
                break
        return outcome

    def _failed(self, error: TooSlow | CallFailed, num_texts: int) -> Outcome:
        is_slow = isinstance(error, TooSlow)
        return Outcome(
            no_scores(num_texts), f"took longer than reward_seconds={self.seconds:g}" if is_slow else str(error)
        )


class RewardFunction:
    """A function of the user's own, by name."""

    def __init__(self, name: str, attempts: Attempts) -> None:
        self.name = name
        self._function = import_named("reward function", name, {})
        if not callable(self._function):
            raise ConfigError(f"reward function {name!r} must be a function, not {self._function!r}")
        self.attempts = attempts
        self.is_async = inspect.iscoroutinefunction(self._function)
        self._accepted = _accepted(self._function)

    @property
    def origin(self) -> object:
        """Where its code comes from."""
        return self._function

    def score(self, texts: Texts) -> Outcome:
        return self.attempts.ask(self.name, lambda: _checked(self._returned(texts), len(texts)), len(texts))

    async def score_async(self, texts: Texts) -> Outcome:
        async def ask() -> Outcome:
            return _checked(await self._returned(texts), len(texts))

        return await self.attempts.ask_async(ask, len(texts))

    def _returned(self, texts: Texts) -> Any:
        arguments = texts.arguments()
        names = arguments.keys() if self._accepted is None else self._accepted & arguments.keys()
        return self._function(**{name: arguments[name] for name in names})


class Rewards:
    """All rewards of a run; scores come later than they are asked for."""

    def __init__(self, functions: Sequence[Reward]) -> None:
        self._functions = functions
        self._orders: SimpleQueue[tuple[Future[Outcome], Callable[[], Outcome]] | None] = SimpleQueue()
        self._loop: EventLoop | None = None
        if any(not function.is_async for function in functions):
            threading.Thread(target=self._serve, name="rewards", daemon=True).start()
        if any(function.is_async for function in functions):
            self._loop = EventLoop("rewards", max(function.attempts.seconds for function in functions))

    def ask(self, texts: Texts) -> list[Future[Outcome]]:
        """What each of the rewards will say."""
        return [self._ask(function, texts) for function in self._functions]

    def awaited(self, answer: Future[Outcome], beat: Callable[[], None] = lambda: None) -> Outcome:
        """The outcome, when it is there; its deadlines are its own."""
        while not wait([answer], LOOK_SECONDS).done:
            beat()
            if self._loop is not None:
                self._loop.look()
        return answer.result()

    def _ask(self, function: Reward, texts: Texts) -> Future[Outcome]:
        if function.is_async:
            assert self._loop is not None
            scoring: Coroutine[Any, Any, Outcome] = function.score_async(texts)
            return self._loop.run(scoring)
        answer: Future[Outcome] = Future()
        self._orders.put((answer, lambda: function.score(texts)))
        return answer

    def close(self) -> None:
        """Nobody asks any more: what serves them ends."""
        self._orders.put(None)
        if self._loop is not None:
            self._loop.close()

    def _serve(self) -> None:
        for answer, score in iter(self._orders.get, None):
            answer_with(answer, score)


def outcomes_of(functions: Sequence[Reward], texts: Texts) -> list[Outcome]:
    """What each of them says, asked once."""
    rewards = Rewards(functions)
    try:
        return [rewards.awaited(answer) for answer in rewards.ask(texts)]
    finally:
        rewards.close()


def check_rewards(functions: Sequence[Reward], texts: Texts) -> None:
    """Ask each of them once, before anything starts; ConfigError where it cannot be used."""
    for function, outcome in zip(functions, outcomes_of(functions, texts), strict=True):
        if outcome.problem:
            raise ConfigError(
                f"reward function {function.name!r}, asked to score the prompt {texts.prompt_texts[0][:60]!r} with "
                f"itself as its completion, {outcome.problem}; it must take `prompts`, `completions` and **columns and "
                "return a list with a finite number for each completion"
            )


def _checked(returned: Any, count: int) -> Outcome:
    """Numbers, one for each completion."""
    values = returned.tolist() if hasattr(returned, "tolist") else returned
    if isinstance(values, str) or not isinstance(values, Sequence):
        return Outcome(no_scores(count), f"returned {_shown(returned)} instead of a list of numbers")
    if len(values) != count:
        return Outcome(no_scores(count), f"returned {len(values)} numbers for {count} completions")
    odd = [value for value in values if not _is_finite_number(value)]
    scores = np.array([float(x) if _is_finite_number(x) else math.nan for x in values], np.float32)
    return Outcome(scores, f"returned {_shown(odd[0])}, which is no finite number" if odd else "")


def _accepted(function: Callable[..., Any]) -> set[str] | None:
    """The arguments that a function takes by name; None where it takes all."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return {parameter.name for parameter in parameters}


def _is_finite_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and math.isfinite(value)


def no_scores(count: int) -> Scores:
    """For so many completions."""
    return np.full(count, math.nan, np.float32)


def _shown(value: Any) -> str:
    return f"{type(value).__name__} {str(value)[:60]!r}" if value is not None else "None"


def reward_names(reward_funcs: Sequence[str]) -> list[str]:
    """What metrics call each of them: the function's or folder's own name, numbered where two are alike."""
    short = [name.rpartition(":")[2].rstrip("/").rpartition("/")[2] for name in reward_funcs]
    return [name if short.count(name) == 1 else f"{name}_{place}" for place, name in enumerate(short)]
