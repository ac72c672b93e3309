"""Environments that wait: `async def step` and `async def reset`, and deadlines for single calls.

An environment whose methods are coroutines is awaited on one event loop of its process, whatever thread asks; so a
thousand of them share a loop. A call that takes longer than its deadline raises TimeoutError: a coroutine is cancelled,
a plain call is left behind on a thread of its own, with its environment, which nobody uses any more.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import cache
from queue import SimpleQueue
from typing import Any

import gymnasium

from htsrl.processes.calls import CallFailed, TooSlow, answer_with, awaited_within, result_within


@dataclass(frozen=True)
class Deadlines:
    """Seconds that a call may take; None: as long as it likes."""

    step_seconds: float | None = None
    reset_seconds: float | None = None

    def __bool__(self) -> bool:
        return self.step_seconds is not None or self.reset_seconds is not None

    def of(self, method: str) -> tuple[float | None, str]:
        """How long, and the setting's name."""
        is_step = method == "step"
        return (
            (self.step_seconds, "step_deadline_seconds") if is_step else (self.reset_seconds, "reset_deadline_seconds")
        )


NO_DEADLINES = Deadlines()
LOOP_SECONDS = 5.0
"""In which a loop that runs has noticed that a deadline is over."""


def is_async(env: gymnasium.Env[Any, Any]) -> bool:
    return inspect.iscoroutinefunction(env.unwrapped.step) or inspect.iscoroutinefunction(env.unwrapped.reset)


def waited_for(env: gymnasium.Env[Any, Any], deadlines: Deadlines = NO_DEADLINES) -> gymnasium.Env[Any, Any]:
    """The environment with plain methods, each of which ends by its deadline; itself where there is nothing to do."""
    if is_async(env):
        return _replaced_base(env, lambda base: Awaited(base, deadlines))
    return OnThread(env, deadlines) if deadlines else env


class Awaited(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Its `step` and `reset` are awaited on the loop of this process."""

    def __init__(self, env: gymnasium.Env[Any, Any], deadlines: Deadlines) -> None:
        super().__init__(env)
        self._deadlines = deadlines

    def step(self, action: Any) -> Any:
        return self._result("step", self.env.step(action))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self._result("reset", self.env.reset(seed=seed, options=options))

    def close(self) -> None:
        close: Any = self.env.close
        closed = close()
        if inspect.isawaitable(closed):
            self._result("close", closed)

    def _result(self, method: str, returned: Any) -> Any:
        if not inspect.iscoroutine(returned):
            return returned
        seconds, setting = self._deadlines.of(method)
        loop = _loop()
        answer = asyncio.run_coroutine_threadsafe(awaited_within(returned, seconds), loop)
        try:
            return _result_of(answer, loop, seconds)
        except TooSlow as late:
            raise _too_slow(method, seconds, setting) from late
        except _Blocked as blocked:
            raise TimeoutError(
                f"{method}() was not awaited within {setting}={seconds:g}: a coroutine, of this environment or another "
                "of its process, blocks the event loop; let it await what takes long"
            ) from blocked
        except CallFailed as failed:
            error = _as_failure(method, failed)
        raise error


class OnThread(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Its calls are made on a thread of its own, which is left behind with the environment when one is too slow."""

    def __init__(self, env: gymnasium.Env[Any, Any], deadlines: Deadlines) -> None:
        super().__init__(env)
        self._deadlines = deadlines
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._is_stuck = False
        threading.Thread(target=_serve, args=(self._calls,), daemon=True).start()

    def step(self, action: Any) -> Any:
        return self._result("step", lambda: self.env.step(action))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self._result("reset", lambda: self.env.reset(seed=seed, options=options))

    def close(self) -> None:
        self._calls.put(None)
        if not self._is_stuck:
            self.env.close()

    def _result(self, method: str, call: Callable[[], Any]) -> Any:
        seconds, setting = self._deadlines.of(method)
        if self._is_stuck:
            raise TimeoutError(f"{method}() of an environment whose call before it has not returned yet")
        future: Future[Any] = Future()
        self._calls.put((call, future))
        try:
            return result_within(future, seconds)
        except TooSlow as late:
            self._is_stuck = True
            raise _too_slow(method, seconds, setting) from late
        except CallFailed as failed:
            error = _as_failure(method, failed)
        raise error


def _serve(calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]) -> None:
    while (asked := calls.get()) is not None:
        call, future = asked
        answer_with(future, call)


def _as_failure(method: str, failed: CallFailed) -> Exception | SystemExit:
    """What the environment raised; KeyboardInterrupt and CancelledError would say that it was the run's own."""
    error = failed.error
    if isinstance(error, Exception | SystemExit):
        return error
    failure = RuntimeError(f"{method}() {failed}")
    failure.__cause__ = error
    return failure


def _too_slow(method: str, seconds: float | None, setting: str) -> TimeoutError:
    return TimeoutError(f"{method}() took longer than {setting}={seconds:g}")


class _Blocked(Exception):
    """The event loop does not run."""


def _result_of(answer: Future[Any], loop: asyncio.AbstractEventLoop, seconds: float | None) -> Any:
    """Where a deadline has passed and the loop itself has not noticed, others are awaited on another one."""
    if seconds is None:
        return answer.result()
    for allowed in (seconds, LOOP_SECONDS):  # one after the other: this process may have been stopped for a while
        if wait([answer], allowed).done:
            return answer.result()
    if _loop() is loop:
        _loop.cache_clear()
    raise _Blocked


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Of this process; workers are forked before they make environments."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="event loop", daemon=True).start()
    return loop


def _replaced_base(
    env: gymnasium.Env[Any, Any], wrap: Callable[[gymnasium.Env[Any, Any]], gymnasium.Env[Any, Any]]
) -> gymnasium.Env[Any, Any]:
    """Wrapped below all of Gymnasium's own wrappers, which call it as a plain environment."""
    if not isinstance(env, gymnasium.Wrapper):
        return wrap(env)
    outer = env
    while isinstance(outer.env, gymnasium.Wrapper):
        outer = outer.env
    outer.env = wrap(outer.env)
    return env
