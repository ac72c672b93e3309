"""Calls of users' code: each ends by its deadline, and what the code raises is told apart from that.

A coroutine that is too slow is cancelled, a plain call is left behind on a thread of its own: nobody can end it.
Whatever the code raises, SystemExit included, is raised in the one who asked as `CallFailed`, and nowhere else: in the
thread or the event loop that it ran on it would end what all others are served by.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, wait
from typing import TypeVar

Answer = TypeVar("Answer")


class TooSlow(Exception):
    """It did not come back by its deadline."""


class CallFailed(Exception):
    """The user's code raised, whatever it was, TimeoutError and SystemExit included."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"raised {type(error).__name__}: {error}")
        self.error = error


def on_thread(call: Callable[[], Answer], name: str) -> Future[Answer]:
    """What it returns, from a thread of its own."""
    answer: Future[Answer] = Future()
    answer.set_running_or_notify_cancel()  # so that one who gives up waiting cannot cancel it under the thread's hands
    threading.Thread(target=answer_with, args=(answer, call), name=name, daemon=True).start()
    return answer


def answer_with(answer: Future[Answer], call: Callable[[], Answer]) -> None:
    """Call, in this thread."""
    try:
        answer.set_result(call())
    except BaseException as error:
        answer.set_exception(CallFailed(error))


def result_within(answer: Future[Answer], seconds: float | None) -> Answer:
    """Raises TooSlow, or CallFailed."""
    if not wait([answer], seconds).done:
        raise TooSlow
    return answer.result()


async def awaited_within(asked: Awaitable[Answer], seconds: float | None) -> Answer:
    """Raises TooSlow, or CallFailed; nobody waits for a coroutine that does not let itself be cancelled."""
    task = asyncio.ensure_future(_caught(asked))
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if not done:
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody else looks at it
        task.cancel()
        raise TooSlow
    return task.result()


async def _caught(asked: Awaitable[Answer]) -> Answer:
    try:
        return await asked
    except (CallFailed, GeneratorExit):
        raise
    except BaseException as error:
        raise CallFailed(error) from error
