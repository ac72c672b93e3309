"""What every role of a run looks at."""

from __future__ import annotations

from dataclasses import dataclass, replace

from htsrl.dataflow.capsules import Capsules
from htsrl.dataflow.exchange import Exchange
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.dataflow.storage import Storages
from htsrl.dataflow.trajectory import TrajectorySpec
from htsrl.schedules.schedule import Schedule
from htsrl.sources.dataset import DatasetSampler
from htsrl.sources.priorities import PriorityRule
from htsrl.sources.replay_buffer import ReplayBuffer
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
    replay_buffer: ReplayBuffer | None = None
    """What the algorithm learns from beside the batch, where it asks for a replay buffer."""
    dataset: DatasetSampler | None = None
    """What a run without environments learns from."""

    @classmethod
    def over(
        cls,
        block: SharedArrays,
        trajectory: TrajectorySpec,
        schedule: Schedule,
        replay_capacity: int = 0,
        priorities: PriorityRule | None = None,
        dataset: DatasetSampler | None = None,
    ) -> Shared:
        exchange, storages = Exchange(block, trajectory.num_steps), Storages(trajectory, block)
        source = schedule.source(block, storages, exchange)
        replay = ReplayBuffer(block, trajectory, replay_capacity, priorities) if replay_capacity else None
        return cls(storages, exchange, schedule, Capsules(block), source, replay, dataset)

    def of_envs(self, envs: range) -> Shared:
        """For those who are about some environments that are neighbours; the source is that of all."""
        return replace(self, storages=self.storages.of_envs(envs), exchange=self.exchange.of_envs(envs))

    def may_begin(self, env: int, rollout: int) -> bool:
        """Whether an environment's rollout has a version to act with and a storage to itself."""
        has_version = self.schedule.may_begin(rollout, self.exchange.published_version)
        return has_version and self.source.has_room(env, rollout)

    def may_go_on(self, env: int, num_rollouts: int) -> bool:
        """Whether an environment has something to do: its request was answered, or it may begin its next rollout."""
        exchange = self.exchange
        request, rollout = int(exchange.requests[env]), int(exchange.completed_rollouts[env])
        if request != exchange.answers[env] or rollout >= num_rollouts:
            return False
        is_answered = request > 0 and exchange.tickets.rollout(request) == rollout
        return is_answered or self.may_begin(env, rollout)
