"""A schedule says which version acts when, and so who may overlap whom.

Under `hts` and `sync` it does so from the interval's number alone. Rollout j fills storage `j % 2`; update j learns
from rollout j of all environments and turns version j into version j+1. All that differs is the version that acts in
rollout j. Everything else follows:

- rollout j may begin once that version is published; a storage is free by then, for the acting version of rollout j is
  at least j-1, and publishing it ended update j-2, the last reader of the storage;
- update j may begin once rollout j is complete;
- update j's data are `j - acting_version(j)` versions behind the parameters that it moves.

Under `async` every step is answered by the newest version, and an update learns from whatever rollouts were complete.
Only this schedule looks at progress; what it saw is written down, and `replay` repeats it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from htsrl.dataflow.exchange import Tickets


class Schedule(Protocol):
    """Which version acts when, by the interval's number."""

    @property
    def step_barrier(self) -> bool:
        """Whether actors wait for all environments at every step."""

    def acting_version(self, rollout: int) -> int:
        """The version whose policy makes the data of rollout `rollout`."""


@runtime_checkable
class LooseSchedule(Protocol):
    """Which version acts when, request by request."""

    def answering_version(self, env: int, ticket: int, published_version: int) -> int:
        """The version that answers a request; one above `published_version` is waited for."""


def loosely(schedule: Schedule | LooseSchedule, tickets: Tickets) -> LooseSchedule:
    """Any schedule, request by request."""
    return schedule if isinstance(schedule, LooseSchedule) else ByInterval(schedule, tickets)


@dataclass(frozen=True)
class ByInterval:
    """Whoever asks in rollout j is answered by the version that acts in rollout j."""

    schedule: Schedule
    tickets: Tickets

    def answering_version(self, env: int, ticket: int, published_version: int) -> int:
        return self.schedule.acting_version(self.tickets.rollout(ticket))


def has_step_barrier(schedule: Schedule | LooseSchedule) -> bool:
    return not isinstance(schedule, LooseSchedule) and schedule.step_barrier


def may_begin(schedule: Schedule, rollout: int, published_version: int) -> bool:
    return published_version >= schedule.acting_version(rollout)
