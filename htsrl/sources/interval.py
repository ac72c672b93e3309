"""A whole interval: update u learns from rollout u of all environments, where it lies."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from htsrl.dataflow.exchange import Exchange, Words
from htsrl.dataflow.storage import Storages
from htsrl.sources.source import Fields


class IntervalSource:
    """The update's number says it all, so there is nothing to hold."""

    max_updates = sys.maxsize

    def __init__(
        self, storages: Storages, exchange: Exchange, acting_version: Callable[[int], int], max_lag: int
    ) -> None:
        """`acting_version` is that of a rollout."""
        self._storages = storages
        self._exchange = exchange
        self._acting_version = acting_version
        self._max_lag = max_lag

    def has_room(self, env: int, rollout: int) -> bool:
        return True  # publishing the version that acts there has ended the update that read the storage last

    def put(self, env: int, rollout: int) -> None:
        pass

    def is_ready(self, update: int) -> bool:
        return self._exchange.rollout_is_complete(update)

    def claim(self, update: int) -> None:
        pass

    def fields(self, update: int) -> Fields:
        return self._storages.batch(self._storages.of_rollout(update))

    def check_versions(self, update: int, fields: Fields) -> None:
        version, made_by = self.behaviour_version(update), fields["versions"]
        assert (made_by == version).all(), f"update {update} expected data of version {version}, got {made_by}"
        assert 0 <= update - version <= self._max_lag, f"update {update} lags {update - version}, over {self._max_lag}"

    def behaviour_version(self, update: int) -> int:
        return self._acting_version(update)

    def provenance(self, update: int, fields: Fields) -> None:
        return None

    def release(self, update: int) -> None:
        pass  # publishing the next version is all that it takes

    def released(self, version: int) -> Words:
        return np.full(self._storages.spec.num_envs, version)

    def completed_at_barrier(self, update: int) -> Words:
        """Some may have made rollouts beyond this one; those are left out, and made again."""
        return np.full(self._storages.spec.num_envs, update + 1)

    def describe(self, update: int) -> str:
        return f"storage {self._storages.of_rollout(update)} (update {update})"

    def waits_for(self, update: int) -> str:
        late = [env for env, done in enumerate(self._exchange.completed_rollouts) if done <= update]
        return f"storage {self._storages.of_rollout(update)} (rollout {update}) from environments {late}"
