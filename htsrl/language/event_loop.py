"""An event loop on a thread of its own, for answers that come late."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from htsrl.errors import HtsrlError

Answer = TypeVar("Answer")
LOOK_SECONDS = 0.2
"""How often one who waits for an answer looks at the loop, and gives a sign of life."""


class EventLoop:
    """Runs until it is closed."""

    def __init__(self, name: str, seconds: float) -> None:
        """A coroutine that does not let it run for so long is an error."""
        self._name = name
        self._max_looks = max(math.ceil(seconds / LOOK_SECONDS), 2)
        self._looks = 0
        self._ran = threading.Event()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def run(self, answer: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        return asyncio.run_coroutine_threadsafe(answer, self._loop)

    def look(self) -> None:
        """Raises HtsrlError where a coroutine blocks the loop, for no deadline is kept then. Looks are counted, and no
        seconds: this process may have been stopped for a while."""
        if self._looks == 0 or self._ran.is_set():
            self._looks = 0
            self._ran.clear()
            self._loop.call_soon_threadsafe(self._ran.set)
        self._looks += 1
        if self._looks > self._max_looks:
            raise HtsrlError(
                f"the event loop of {self._name} has not run for {self._max_looks * LOOK_SECONDS:g} s: a coroutine "
                "blocks it. Let it await what takes long, or make it a plain function; then resume the run"
            )

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        self._loop.call_soon_threadsafe(function, *arguments)

    def close(self) -> None:
        """What is under way is cancelled, and the thread ends by itself: nobody waits for a user's code."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(_cancel_others())
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
