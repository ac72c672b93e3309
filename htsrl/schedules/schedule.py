"""A schedule says, from the interval's number alone, which version acts and who may overlap whom.

Rollout j fills storage `j % 2`; update j learns from rollout j and turns version j into version j+1. All that
differs between schedules is the version that acts in rollout j. Everything else follows:

- rollout j may begin once that version is published; a storage is free by then, for under every schedule the
  acting version of rollout j is at least j-1, and publishing it ended update j-2, the last reader of the storage;
- update j may begin once rollout j is complete;
- update j's data are `j - acting_version(j)` versions behind the parameters that it moves.
"""

from __future__ import annotations

from typing import Literal, Protocol

from htsrl.dataflow.trajectory import NUM_STORAGES
from htsrl.schedules.hts import Hts
from htsrl.schedules.sync import Sync


class Schedule(Protocol):
    """Which version acts when."""

    @property
    def step_barrier(self) -> bool:
        """Whether actors wait for all environments at every step."""

    def acting_version(self, rollout: int) -> int:
        """The version whose policy makes the data of rollout `rollout`."""


def make_schedule(name: Literal["hts", "sync", "lockstep"]) -> Schedule:
    return Hts() if name == "hts" else Sync(step_barrier=name == "lockstep")


def storage_of(rollout: int) -> int:
    return rollout % NUM_STORAGES


def may_begin(schedule: Schedule, rollout: int, published_version: int) -> bool:
    return published_version >= schedule.acting_version(rollout)


def lag(schedule: Schedule, update: int) -> int:
    """How many versions the data of an update are behind the parameters it moves."""
    return update - schedule.acting_version(update)
