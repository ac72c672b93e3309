"""What every role of a run looks at."""

from __future__ import annotations

from dataclasses import dataclass

from htsrl.dataflow.capsules import Capsules
from htsrl.dataflow.exchange import Exchange
from htsrl.dataflow.memory import SharedArrays
from htsrl.dataflow.queue import Rollout, RolloutQueue
from htsrl.dataflow.storage import Storages
from htsrl.dataflow.trajectory import TrajectorySpec
from htsrl.schedules.schedule import LooseSchedule, Schedule, may_begin


@dataclass(frozen=True)
class Shared:
    """The storages, the words that announce what is in them, the schedule that says who may touch which when, the
    capsules from which environments come back, and the queue of rollouts where the schedule has one."""

    storages: Storages
    exchange: Exchange
    schedule: Schedule | LooseSchedule
    capsules: Capsules
    queue: RolloutQueue | None = None

    @classmethod
    def over(cls, memory: SharedArrays, trajectory: TrajectorySpec, schedule: Schedule | LooseSchedule) -> Shared:
        exchange = Exchange(memory, trajectory.num_steps)
        queue = RolloutQueue(memory, exchange) if isinstance(schedule, LooseSchedule) else None
        return cls(Storages(trajectory, memory), exchange, schedule, Capsules(memory), queue)

    def may_begin(self, env: int, rollout: int) -> bool:
        """Whether an environment's rollout has a storage to itself and a version to act with."""
        if self.queue is not None:
            return self.queue.has_room(Rollout(env, rollout))
        assert not isinstance(self.schedule, LooseSchedule)
        return may_begin(self.schedule, rollout, self.exchange.published_version)
