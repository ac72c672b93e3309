"""The bounded queue of asynchronous training: complete rollouts that wait for the learner, environment by environment.

The rollouts themselves lie in the storages; the queue is words that say in which order they were completed and how many
of them have been learned from. An environment has a place for as many rollouts as there are storages, under way or
waiting, and waits for room otherwise.

Who writes what: the environment's executor its orders, before it counts the rollout as completed; the learner which
rollouts it has chosen for an update, before it begins, and the released rollouts of a version, before it publishes
that. A rollout is released by the version that learned from it, so a learner that dies in the middle leaves the queue
as it was.
"""

from __future__ import annotations

from dataclasses import dataclass

from htsrl.dataflow.exchange import Exchange, Words
from htsrl.dataflow.shared_arrays import ArraySpec, SharedArrays
from htsrl.dataflow.versions import is_intact, num_slots_for, slot_of

RELEASED = "released_rollouts"
ORDERS = "completion_orders"
CHOSEN = "chosen_rollouts"


@dataclass(frozen=True)
class Rollout:
    """One environment's."""

    env: int
    number: int


def queue_arrays(num_envs: int, length: int) -> list[ArraySpec]:
    num_slots = num_slots_for(max_lag=None)
    return [
        ArraySpec(RELEASED, (num_slots, num_envs), "int64", kept_by="version"),
        ArraySpec(ORDERS, (length, num_envs), "int64", kept_by="env"),
        ArraySpec(CHOSEN, (1 + 2 * num_envs,), "int64"),
    ]


class RolloutQueue:
    """First come, first served."""

    def __init__(self, block: SharedArrays, exchange: Exchange) -> None:
        self._released: Words = block[RELEASED]
        self._orders: Words = block[ORDERS]
        self._chosen: Words = block[CHOSEN]
        self._length = len(self._orders)
        self._exchange = exchange

    def put(self, rollout: Rollout) -> None:
        """Take a place behind all others; two that come at the same time may share one."""
        self._orders[rollout.number % self._length, rollout.env] = self._orders.max() + 1

    def has_room(self, rollout: Rollout) -> bool:
        """Whether the environment may begin with it."""
        while True:
            version = self._exchange.published_version
            released = int(self.released(version)[rollout.env])
            if is_intact(version, self._exchange.published_version, len(self._released)):
                return rollout.number < released + self._length

    def choose(self, update: int, rollouts: list[Rollout]) -> None:
        """Note what an update learns from, for those who take its gradients and for whoever takes over from a learner
        that dies."""
        self._chosen[1:] = [number for rollout in rollouts for number in (rollout.env, rollout.number)]
        self._chosen[0] = update + 1

    def chosen(self, update: int) -> list[Rollout] | None:
        if self._chosen[0] != update + 1:
            return None
        return [Rollout(env, number) for env, number in self._chosen[1:].reshape(-1, 2).tolist()]

    def oldest(self, version: int, count: int) -> list[Rollout] | None:
        """The rollouts that have waited longest for update `version`; None while there are not enough."""
        released, completed = self.released(version), self._exchange.completed_rollouts
        waiting = [
            (int(self._orders[number % self._length, env]), env, number)
            for env in range(len(completed))
            for number in range(int(released[env]), int(completed[env]))
        ]
        if len(waiting) < count:
            return None
        return [Rollout(env, number) for _, env, number in sorted(waiting)[:count]]

    def release(self, version: int, learned: list[Rollout]) -> None:
        """Note with `version` that it has learned from these."""
        released = self.released(version - 1).copy()
        for rollout in learned:
            released[rollout.env] += 1
        self.released(version)[:] = released

    def released(self, version: int) -> Words:
        """How many of each environment `version` has learned from."""
        of_version: Words = self._released[slot_of(version, len(self._released))]
        return of_version
