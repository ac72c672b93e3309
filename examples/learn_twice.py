"""A schedule and a batch source of one's own: every rollout is learned from twice.

    htsrl train CartPole-v1 --schedule examples.learn_twice:LearnTwice --epochs 5

Updates 2j and 2j+1 learn from rollout j, which version 2j-2 made: one rollout is made while the one before it is
learned from, as under `hts`. The environments make half of the steps that the run counts.
"""

from __future__ import annotations

import sys

import numpy as np

from htsrl.extending import ArraySpec, Exchange, Experiment, Fields, Request, SharedArrays, Storages, Words

TIMES = 2


class LearnTwice:
    """The rollout's number says which version acts, and the update's number which rollout is learned from."""

    step_barrier = False
    mixes_versions = True  # the batch of update j is not rollout j
    repeats = False
    max_lag = 2 * TIMES - 1
    num_storages = max_lag + 1

    def __init__(self, experiment: Experiment) -> None: ...

    def acting_version(self, rollout: int) -> int:
        return max(TIMES * (rollout - 1), 0)

    def answering_version(self, request: Request, published_version: int) -> int:
        return self.acting_version(request.rollout)

    def may_begin(self, rollout: int, published_version: int) -> bool:
        return published_version >= self.acting_version(rollout)

    def num_rollouts(self, env: int, num_updates: int) -> int:
        return -(-num_updates // TIMES)

    def arrays(self, num_envs: int) -> list[ArraySpec]:
        return []  # numbers say it all, so there is nothing to hold

    def source(self, block: SharedArrays, storages: Storages, exchange: Exchange) -> RolloutTwice:
        return RolloutTwice(storages, exchange, self)


class RolloutTwice:
    """Where it lies, for two updates one after the other."""

    max_updates = sys.maxsize

    def __init__(self, storages: Storages, exchange: Exchange, schedule: LearnTwice) -> None:
        self._storages, self._exchange, self._schedule = storages, exchange, schedule

    def has_room(self, env: int, rollout: int) -> bool:
        return True  # the version that acts there was published after the storage was read for the last time

    def put(self, env: int, rollout: int) -> None: ...

    def is_ready(self, update: int) -> bool:
        return self._exchange.rollout_is_complete(update // TIMES)

    def claim(self, update: int) -> None: ...

    def fields(self, update: int) -> Fields:
        return self._storages.batch(self._storages.of_rollout(update // TIMES))

    def check_versions(self, update: int, fields: Fields) -> None:
        assert (fields["versions"] == self.behaviour_version(update)).all()

    def behaviour_version(self, update: int) -> int:
        return self._schedule.acting_version(update // TIMES)

    def provenance(self, update: int, fields: Fields) -> None:
        return None

    def release(self, update: int) -> None: ...

    def released(self, version: int) -> Words:
        return np.full(self._storages.spec.num_envs, version // TIMES)

    def completed_at_barrier(self, update: int) -> Words:
        return np.full(self._storages.spec.num_envs, update // TIMES + 1)

    def describe(self, update: int) -> str:
        return f"rollout {update // TIMES}"

    def waits_for(self, update: int) -> str:
        return f"rollout {update // TIMES} of all environments"
