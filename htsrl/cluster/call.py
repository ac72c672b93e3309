"""A remote call that is under way."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class Call:
    """Rings when it is done, and is late after so many seconds."""

    def __init__(self, reference: Any, ring: Callable[[], None], seconds: float) -> None:
        self._future = reference.future()
        self._future.add_done_callback(lambda _: ring())
        self._deadline = time.monotonic() + seconds

    @property
    def is_done(self) -> bool:
        """Raises TimeoutError where it should have been, for long."""
        if not self._future.done() and time.monotonic() > self._deadline:
            raise TimeoutError("it did not answer before its deadline")
        return bool(self._future.done())

    def result(self) -> Any:
        return self._future.result(timeout=0)
