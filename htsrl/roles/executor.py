"""The executor: owns environments, reads actions, steps, writes observations."""

from __future__ import annotations

from collections.abc import Sequence

from htsrl.roles.replica import Replica, Stage
from htsrl.roles.role import Notify, NotifyFor


class Executor:
    """Takes each of its environments as far as it can go, in turn; none waits for another."""

    def __init__(self, replicas: Sequence[Replica], notify_actors: NotifyFor, notify_learner: Notify) -> None:
        self.replicas = replicas
        self._notify_actors = notify_actors
        self._notify_learner = notify_learner

    def advance(self) -> bool:
        progressed: list[int] = []
        completed = False
        for replica in self.replicas:
            rollout = replica.rollout
            if replica.advance():
                progressed.append(replica.index)
                completed |= replica.rollout != rollout
        if progressed:
            self._notify_actors(progressed)
        if completed:
            self._notify_learner()
        return bool(progressed)

    @property
    def finished(self) -> bool:
        return all(replica.stage is Stage.NOTHING for replica in self.replicas)

    def waits_for(self) -> str:
        envs_by_stage = {stage: [r.index for r in self.replicas if r.stage is stage] for stage in Stage}
        return ", ".join(f"{stage.value} (environments {envs})" for stage, envs in envs_by_stage.items() if envs)

    def close(self) -> None:
        for replica in self.replicas:
            replica.close()
