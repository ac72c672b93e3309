"""A queue of complete rollouts: an update learns from as many as there are environments, side by side in one batch."""

from __future__ import annotations

import sys
from typing import Protocol

import numpy as np

from htsrl.dataflow.exchange import Words
from htsrl.dataflow.queue import Rollout, RolloutQueue
from htsrl.dataflow.storage import Storages
from htsrl.dataflow.trajectory import BOOTSTRAP_VERSIONS
from htsrl.sources.provenance import BatchProvenance, RolloutProvenance
from htsrl.sources.source import Fields


class Choice(Protocol):
    """Which of the complete rollouts an update takes."""

    @property
    def max_updates(self) -> int:
        """How many it can choose for."""

    def choose(self, update: int) -> list[Rollout] | None:
        """None while it cannot be made."""


class OldestFirst:
    """First come, first served."""

    max_updates = sys.maxsize

    def __init__(self, queue: RolloutQueue, num_rollouts: int) -> None:
        self._queue = queue
        self._num_rollouts = num_rollouts

    def choose(self, update: int) -> list[Rollout] | None:
        return self._queue.oldest(update, self._num_rollouts)


class QueueSource:
    """Environments come as far as there is room for their rollouts, and wait for nobody."""

    def __init__(self, storages: Storages, queue: RolloutQueue, choice: Choice) -> None:
        self._storages = storages
        self._queue = queue
        self._choice = choice
        self.max_updates = choice.max_updates

    def has_room(self, env: int, rollout: int) -> bool:
        return self._queue.has_room(Rollout(env, rollout))

    def put(self, env: int, rollout: int) -> None:
        self._queue.put(Rollout(env, rollout))

    def is_ready(self, update: int) -> bool:
        return self._chosen(update) is not None

    def claim(self, update: int) -> None:
        """A learner that takes over from a dead one takes what that had chosen, though more may have come in."""
        rollouts = self._chosen(update)
        assert rollouts is not None, f"there is nothing yet for update {update}"
        self._queue.choose(update, rollouts)

    def fields(self, update: int) -> Fields:
        return self._storages.gathered(self._claimed(update))

    def check_versions(self, update: int, fields: Fields) -> None:
        made_by = fields["versions"]
        never_fall = (np.diff(made_by, axis=0) >= 0).all() and (made_by >= 0).all() and (made_by <= update).all()
        assert never_fall, f"update {update} expected versions up to its own that never fall, got {made_by}"

    def behaviour_version(self, update: int) -> None:
        return None

    def provenance(self, update: int, fields: Fields) -> BatchProvenance:
        """Which rollouts, and which versions answered in them; those are the same for all agents of an environment."""
        num_agents, rollouts = self._storages.spec.num_agents, self._claimed(update)
        versions, value_versions = fields["versions"][:, ::num_agents], fields[BOOTSTRAP_VERSIONS][:, ::num_agents]
        return BatchProvenance(
            update,
            [
                RolloutProvenance.of(rollout.env, rollout.number, versions[:, i], value_versions[:, i])
                for i, rollout in enumerate(rollouts)
            ],
        )

    def release(self, update: int) -> None:
        self._queue.release(update + 1, self._claimed(update))

    def released(self, version: int) -> Words:
        return self._queue.released(version)

    def completed_at_barrier(self, update: int) -> None:
        return None

    def describe(self, update: int) -> str:
        return f"the queue (update {update})"

    def waits_for(self, update: int) -> str:
        return f"{self._storages.spec.num_envs} complete rollouts in the queue (update {update})"

    def _claimed(self, update: int) -> list[Rollout]:
        rollouts = self._queue.chosen(update)
        assert rollouts is not None, f"nothing was claimed for update {update}"
        return rollouts

    def _chosen(self, update: int) -> list[Rollout] | None:
        return self._queue.chosen(update) or self._choice.choose(update)
