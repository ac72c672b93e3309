"""A schedule says which version acts when, and so who may overlap whom, and where updates get their batches.

Under `hts` and `sync` it does so from the interval's number alone: rollout j is made by version j-lag, update j learns
from rollout j of all environments and turns version j into version j+1. Everything else follows from the lag:

- rollout j may begin once version j-lag is published; its storage is free by then, for that ended update j-lag-1, the
  last reader of the storage, where there are lag+1 of them;
- update j may begin once rollout j is complete;
- while update j runs, versions j-lag to j act or are differentiated and j+1 is written, which takes lag+2 slots.

Under `async` every step is answered by the newest version, and an update learns from whatever rollouts were complete.
Only this schedule looks at progress; what it saw is written down, and a recorded schedule repeats it.
"""

from __future__ import annotations

from typing import Protocol

from htsrl.dataflow.exchange import Exchange, Request
from htsrl.dataflow.shared_arrays import ArraySpec, SharedArrays
from htsrl.dataflow.storage import Storages
from htsrl.sources.source import BatchSource


class Schedule(Protocol):
    """Which version acts when, and what an update learns from."""

    @property
    def max_lag(self) -> int | None:
        """How many versions the data of an update may be behind the parameters that it moves; None: any number."""

    @property
    def num_storages(self) -> int:
        """Rollouts of one environment that there is room for, under way or not yet learned from."""

    @property
    def step_barrier(self) -> bool:
        """Whether actors wait for all environments at every step."""

    @property
    def mixes_versions(self) -> bool:
        """Whether several versions may act in one rollout, so that nobody can ask them again once it is complete, or an
        update learns from anything but the rollout of its own number, of all environments."""

    @property
    def repeats(self) -> bool:
        """Whether actors wait for versions, and updates for answers, as they came in a run that was recorded."""

    def answering_version(self, request: Request, published_version: int) -> int:
        """The version that answers a request; one above `published_version` is waited for."""

    def may_begin(self, rollout: int, published_version: int) -> bool:
        """Whether there is a version to act in a rollout; whether there is room for it is the source's business."""

    def num_rollouts(self, env: int, num_updates: int) -> int:
        """How many an environment makes."""

    def arrays(self, num_envs: int) -> list[ArraySpec]:
        """What its source holds in shared memory."""

    def source(self, block: SharedArrays, storages: Storages, exchange: Exchange) -> BatchSource:
        """Where updates get their batches."""
