"""How a worker sleeps: in view of the supervisor, and not for ever."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from htsrl.dataflow.exchange import Exchange
from htsrl.dataflow.signals import Waiter
from htsrl.errors import WaitTimeout
from htsrl.processes.parent_death import parent_is_stopped

# Time for the supervisor to find out who hangs, start it again, and find out that it does so again.
MAX_WAITS_IN_VAIN = 3


class Sleeper:
    """Sleeps until its worker's doorbell rings, and gives up when nobody has got on for long."""

    def __init__(self, name: str, number: int, exchange: Exchange, waiter: Waiter, deadline_seconds: float) -> None:
        self._name = name
        self._number = number
        self._exchange = exchange
        self._waiter = waiter
        self._deadline_seconds = deadline_seconds
        self._in_vain = 0
        self._pulse = b""  # of the run, when a wait was last in vain
        waiter.waited_seconds = float(exchange.waited_seconds[number])

    def has_started(self) -> None:
        """Whoever worked here before may have died in its sleep."""
        self._exchange.naps[self._number] += 2 - self._exchange.naps[self._number] % 2

    def clear(self) -> None:
        """What there is to do is looked for after this, and before sleeping."""
        self._waiter.clear()

    def has_worked(self) -> None:
        self._in_vain = 0

    def sleep(self, waits_for: Callable[[], str], may_be_long: Callable[[], bool] = lambda: False) -> None:
        exchange, number = self._exchange, self._number
        exchange.naps[number] += 1
        was_rung = self._waiter.wait(self._deadline_seconds)
        exchange.naps[number] += 1
        exchange.waited_seconds[number] = self._waiter.waited_seconds
        if was_rung or may_be_long() or parent_is_stopped():
            self._in_vain = 0
        else:
            self._count_wait(waits_for)

    def _count_wait(self, waits_for: Callable[[], str]) -> None:
        """One more in which nobody rang; whether others got on meanwhile is known from the second on."""
        pulse = self._exchange.pulse()
        self._in_vain = self._in_vain + 1 if pulse == self._pulse else 0
        self._pulse = pulse
        if self._in_vain == MAX_WAITS_IN_VAIN:
            raise WaitTimeout(
                f"{self._name} (pid {os.getpid()}) waited {self._in_vain} times deadline_seconds="
                f"{self._deadline_seconds:g} for {waits_for()}"
            )

    def sleep_until(self, it_is_so: Callable[[], bool], waits_for: Callable[[], str]) -> None:
        """In the middle of a role's work, which others carry on with."""
        while not it_is_so():
            self.clear()
            if self._exchange.stopping:
                sys.exit()  # nobody will carry on
            if not it_is_so():
                self.sleep(waits_for)
        self.has_worked()
