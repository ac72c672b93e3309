"""Learning from a dataset: nobody acts, so an update may begin as soon as the one before it is over."""

from __future__ import annotations

from dataclasses import dataclass

from htsrl.dataflow.exchange import Exchange, Request
from htsrl.dataflow.shared_arrays import ArraySpec, SharedArrays
from htsrl.dataflow.storage import Storages
from htsrl.sources.dataset import DatasetSource


@dataclass(frozen=True)
class Offline:
    """No rollouts, and so no lag: data of any age are all there is."""

    max_lag: int = 0
    num_storages: int = 2
    step_barrier = False
    mixes_versions = False
    repeats = False

    def answering_version(self, request: Request, published_version: int) -> int:
        raise AssertionError(f"nobody acts in a run that learns from a dataset, and yet {request} was asked")

    def may_begin(self, rollout: int, published_version: int) -> bool:
        return False

    def num_rollouts(self, env: int, num_updates: int) -> int:
        return 0

    def arrays(self, num_envs: int) -> list[ArraySpec]:
        return []

    def source(self, block: SharedArrays, storages: Storages, exchange: Exchange) -> DatasetSource:
        return DatasetSource(storages)
