"""What every role of a run looks at."""

from __future__ import annotations

from dataclasses import dataclass

from htsrl.dataflow.capsules import Capsules
from htsrl.dataflow.exchange import Exchange
from htsrl.dataflow.memory import SharedArrays
from htsrl.dataflow.storage import Storages
from htsrl.dataflow.trajectory import TrajectorySpec
from htsrl.schedules.schedule import Schedule


@dataclass(frozen=True)
class Shared:
    """The storages, the words that announce what is in them, the schedule that says who may touch which when, and the
    capsules from which environments come back."""

    storages: Storages
    exchange: Exchange
    schedule: Schedule
    capsules: Capsules

    @classmethod
    def over(cls, memory: SharedArrays, trajectory: TrajectorySpec, schedule: Schedule) -> Shared:
        return cls(Storages(trajectory, memory), Exchange(memory, trajectory.num_steps), schedule, Capsules(memory))
