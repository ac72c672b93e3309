"""Asynchronous training, as in GA3C and IMPALA: nobody waits for anybody but for room in the queue.

An environment begins its next rollout while the queue has room for it, every step is answered by the newest version,
and an update takes the oldest complete rollouts, as many as there are environments. How far the data are behind depends
on the machine's mood, and is measured. The length of the queue bounds how many updates a complete rollout waits for;
while one is under way, any number of versions may pass.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from htsrl.dataflow.exchange import Exchange, Request
from htsrl.dataflow.queue import RolloutQueue, queue_arrays
from htsrl.dataflow.shared_arrays import ArraySpec, SharedArrays
from htsrl.dataflow.storage import Storages
from htsrl.sources.queue import OldestFirst, QueueSource


@dataclass(frozen=True)
class Async:
    """The newest version acts."""

    num_storages: int
    """The length of the queue."""
    max_lag = None
    step_barrier = False
    mixes_versions = True
    repeats = False

    def answering_version(self, request: Request, published_version: int) -> int:
        return published_version

    def may_begin(self, rollout: int, published_version: int) -> bool:
        return True

    def num_rollouts(self, env: int, num_updates: int) -> int:
        return sys.maxsize

    def arrays(self, num_envs: int) -> list[ArraySpec]:
        return queue_arrays(num_envs, self.num_storages)

    def source(self, block: SharedArrays, storages: Storages, exchange: Exchange) -> QueueSource:
        queue = RolloutQueue(block, exchange)
        return QueueSource(storages, queue, OldestFirst(queue, storages.spec.num_envs))
