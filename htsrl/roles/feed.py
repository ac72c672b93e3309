"""What an update learns from, and when it may begin: a whole interval, or the head of a queue."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from htsrl.dataflow.queue import Rollout, RolloutQueue
from htsrl.dataflow.shared import Shared
from htsrl.dataflow.trajectory import BOOTSTRAP_VERSIONS
from htsrl.schedules.replay import Feeding, Pick, Replay
from htsrl.schedules.schedule import LooseSchedule, Schedule

Fields = Mapping[str, NDArray[Any]]


class Feed(Protocol):
    """Gives the learner its batches."""

    @property
    def most_updates(self) -> int:
        """How many there can be, if the experiment asks for as many."""

    def is_ready(self, update: int) -> bool:
        """Whether there is enough to learn from."""

    def fields(self, update: int) -> Fields:
        """The fields `[T, B, ...]` of the update's batch, which nobody writes to until it is released."""

    def settle(self, update: int) -> None:
        """Hold on to what the update learns from; for the learner alone."""

    def check_versions(self, update: int, fields: Fields) -> None:
        """Assert that the batch was made by versions that may have made it."""

    def behaviour_version(self, update: int) -> int | None:
        """The version that made the batch; None where there is no such one."""

    def feeding(self, update: int, fields: Fields) -> Feeding | None:
        """What nobody could work out from the update's number."""

    def release(self, update: int) -> None:
        """The version after the update no longer needs the batch; takes effect when that is published."""

    def source(self, update: int) -> str:
        """Where the batch comes from, for error messages."""

    def waits_for(self, update: int) -> str:
        """What is missing, for error messages."""


def feed_of(shared: Shared) -> Feed:
    if shared.queue is None:
        assert not isinstance(shared.schedule, LooseSchedule)
        return IntervalFeed(shared, shared.schedule)
    if isinstance(shared.schedule, Replay):
        return ReplayFeed(shared, shared.queue, shared.schedule)
    return QueueFeed(shared, shared.queue)


class IntervalFeed:
    """Update u learns from rollout u of all environments, without a copy."""

    most_updates = sys.maxsize

    def __init__(self, shared: Shared, schedule: Schedule) -> None:
        self._storages = shared.storages
        self._exchange = shared.exchange
        self._schedule = schedule

    def is_ready(self, update: int) -> bool:
        return self._exchange.rollout_is_complete(update)

    def settle(self, update: int) -> None:
        pass  # the update's number says it all

    def fields(self, update: int) -> Fields:
        return self._storages.batch(self._storages.of_rollout(update))

    def check_versions(self, update: int, fields: Fields) -> None:
        version, made_by = self.behaviour_version(update), fields["versions"]
        assert (made_by == version).all(), f"update {update} expected data of version {version}, got {made_by}"

    def behaviour_version(self, update: int) -> int:
        return self._schedule.acting_version(update)

    def feeding(self, update: int, fields: Fields) -> None:
        return None

    def release(self, update: int) -> None:
        pass  # publishing the next version is all that it takes

    def source(self, update: int) -> str:
        return f"storage {self._storages.of_rollout(update)} (update {update})"

    def waits_for(self, update: int) -> str:
        late = [env for env, done in enumerate(self._exchange.completed_rollouts) if done <= update]
        return f"storage {self._storages.of_rollout(update)} (rollout {update}) from environments {late}"


class QueueFeed:
    """An update learns from the oldest complete rollouts, as many as there are environments."""

    most_updates = sys.maxsize

    def __init__(self, shared: Shared, queue: RolloutQueue) -> None:
        self._storages = shared.storages
        self._exchange = shared.exchange
        self._queue = queue
        self._num_envs = shared.storages.spec.num_envs
        self._of_update: tuple[int, list[Rollout]] | None = None

    def is_ready(self, update: int) -> bool:
        return self._rollouts(update) is not None

    def settle(self, update: int) -> None:
        rollouts = self._rollouts(update)
        assert rollouts is not None, f"there is nothing yet for update {update}"
        self._queue.choose(update, rollouts)

    def fields(self, update: int) -> Fields:
        return self._storages.gathered(self._chosen(update))

    def check_versions(self, update: int, fields: Fields) -> None:
        made_by = fields["versions"]
        never_fall = (np.diff(made_by, axis=0) >= 0).all() and (made_by >= 0).all() and (made_by <= update).all()
        assert never_fall, f"update {update} expected versions up to its own that never fall, got {made_by}"

    def behaviour_version(self, update: int) -> None:
        return None

    def feeding(self, update: int, fields: Fields) -> Feeding:
        """Which rollouts, and which versions answered in them; those are the same for all agents of an environment."""
        num_agents, rollouts = self._storages.spec.num_agents, self._chosen(update)
        versions, value_versions = fields["versions"][:, ::num_agents], fields[BOOTSTRAP_VERSIONS][:, ::num_agents]
        return Feeding(
            update,
            [
                Pick.of(rollout.env, rollout.number, versions[:, i], value_versions[:, i])
                for i, rollout in enumerate(rollouts)
            ],
        )

    def release(self, update: int) -> None:
        self._queue.release(update + 1, self._chosen(update))

    def source(self, update: int) -> str:
        return f"the queue (update {update})"

    def waits_for(self, update: int) -> str:
        return f"{self._num_envs} complete rollouts in the queue (update {update})"

    def _chosen(self, update: int) -> list[Rollout]:
        rollouts = self._rollouts(update)
        assert rollouts is not None, f"there is nothing yet for update {update}"
        return rollouts

    def _rollouts(self, update: int) -> list[Rollout] | None:
        """Chosen once: while the learner is at work, more come in."""
        if self._of_update is None or self._of_update[0] != update:
            rollouts = self._queue.chosen(update) or self._choose(update)
            self._of_update = None if rollouts is None else (update, rollouts)
        return self._of_update[1] if self._of_update else None

    def _choose(self, update: int) -> list[Rollout] | None:
        return self._queue.oldest(update, self._num_envs)


class ReplayFeed(QueueFeed):
    """An update learns from what it learned from in the run that is replayed."""

    def __init__(self, shared: Shared, queue: RolloutQueue, schedule: Replay) -> None:
        super().__init__(shared, queue)
        self._schedule = schedule
        self.most_updates = len(schedule.feedings)

    def _choose(self, update: int) -> list[Rollout] | None:
        if update == self.most_updates:
            return None
        picks = self._schedule.feedings[update].picks
        are_complete = all(self._exchange.completed_rollouts[pick.env] > pick.rollout for pick in picks)
        if not are_complete or not self._schedule.may_begin(update, self._exchange.answers):
            return None
        return [Rollout(pick.env, pick.rollout) for pick in picks]


def lag_metrics(update: int, fields: Fields) -> dict[str, float]:
    """How many versions the batch is behind the parameters that the update moves: on average, and at most."""
    lags = update - fields["versions"]
    return {"hts/lag": float(lags.mean()), "hts/lag_max": float(np.max(lags))}
