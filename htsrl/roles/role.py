"""What executors, actors and learner have in common, and the loop that drives them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable


class Role(Protocol):
    """Does what there is to do, and never blocks."""

    def advance(self) -> bool:
        """Do all the work that is ready; False when there was none."""

    def waits_for(self) -> str:
        """What would have to happen for there to be work, for error messages."""


@runtime_checkable
class Collector(Role, Protocol):
    """A role that fills columns of the storages: steps environments, or generates texts."""

    @property
    def finished(self) -> bool:
        """Whether it has made all its rollouts, and may wait as long as the learner takes for the last ones."""

    def close(self) -> None:
        """The run is over."""


def advance_all(roles: Sequence[Role]) -> bool:
    """Give every role a turn; True when any of them found work."""
    progressed = False
    for role in roles:
        progressed |= role.advance()
    return progressed


class Jittery:
    """A role that sleeps a random while before each turn: timing must not change a result."""

    def __init__(self, role: Role, most_seconds: float) -> None:
        self._role = role
        self._most_seconds = most_seconds
        self._random = random.Random()

    def advance(self) -> bool:
        time.sleep(self._random.uniform(0, self._most_seconds))
        return self._role.advance()

    def waits_for(self) -> str:
        return self._role.waits_for()


Notify = Callable[[], None]
"""Wakes those who may now have work."""

NotifyFor = Callable[[Sequence[int]], None]
"""Wakes those who may now have work with these environments."""
