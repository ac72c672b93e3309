"""What every role of a run looks at."""

from __future__ import annotations

from dataclasses import dataclass

from htsrl.dataflow.capsules import Capsules
from htsrl.dataflow.exchange import Exchange
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.dataflow.storage import Storages
from htsrl.dataflow.trajectory import TrajectorySpec
from htsrl.schedules.schedule import Schedule
from htsrl.sources.replay import ReplayBuffer
from htsrl.sources.source import BatchSource


@dataclass(frozen=True)
class Shared:
    """The storages, the words that announce what is in them, the schedule that says who may touch which when, the
    capsules from which environments come back, and the source of the learner's batches."""

    storages: Storages
    exchange: Exchange
    schedule: Schedule
    capsules: Capsules
    source: BatchSource
    replay: ReplayBuffer | None = None
    """What the algorithm learns from beside the batch, where it asks for a replay buffer."""

    @classmethod
    def over(
        cls, block: SharedArrays, trajectory: TrajectorySpec, schedule: Schedule, replay_capacity: int = 0
    ) -> Shared:
        exchange, storages = Exchange(block, trajectory.num_steps), Storages(trajectory, block)
        source = schedule.source(block, storages, exchange)
        replay = ReplayBuffer(block, trajectory, replay_capacity) if replay_capacity else None
        return cls(storages, exchange, schedule, Capsules(block), source, replay)

    def may_begin(self, env: int, rollout: int) -> bool:
        """Whether an environment's rollout has a version to act with and a storage to itself."""
        has_version = self.schedule.may_begin(rollout, self.exchange.published_version)
        return has_version and self.source.has_room(env, rollout)
