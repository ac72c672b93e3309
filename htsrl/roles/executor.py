"""The executor: owns environments, reads actions, steps, writes observations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from htsrl.roles.replica import Replica, Stage
from htsrl.roles.role import Notify, NotifyFor


class Bells(NamedTuple):
    """Whom an executor wakes."""

    notify_actors: NotifyFor
    notify_learner: Notify


NO_BELLS = Bells(notify_actors=lambda envs: None, notify_learner=lambda: None)
"""Where nobody sleeps."""


class Executor:
    """Takes each of its environments as far as it can go, in turn; none waits for another."""

    def __init__(self, replicas: Sequence[Replica], bells: Bells) -> None:
        self.replicas = replicas
        self._bells = bells

    def advance(self) -> bool:
        progressed: list[int] = []
        completed = False
        for replica in self.replicas:
            rollout = replica.rollout
            if replica.advance():
                progressed.append(replica.index)
                completed |= replica.rollout != rollout
        if progressed:
            self._bells.notify_actors(progressed)
        if completed:
            self._bells.notify_learner()
        return bool(progressed)

    @property
    def finished(self) -> bool:
        return all(replica.stage is Stage.NOTHING for replica in self.replicas)

    def waits_for(self) -> str:
        return ", ".join(describe_stages(self.replicas))

    def close(self) -> None:
        for replica in self.replicas:
            replica.close()


def describe_stages(replicas: Sequence[Replica]) -> list[str]:
    """What these wait for, for error messages."""
    envs_by_stage = {stage: [r.index for r in replicas if r.stage is stage] for stage in Stage}
    return [f"{stage.value} (environments {envs})" for stage, envs in envs_by_stage.items() if envs]
