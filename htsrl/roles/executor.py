"""The executor: owns environments, reads actions, steps, writes observations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from htsrl.roles.env_runner import EnvRunner, Stage
from htsrl.roles.lane_runner import LaneRunner
from htsrl.roles.role import Notify, NotifyFor

Runner = EnvRunner | LaneRunner


class Bells(NamedTuple):
    """Whom an executor wakes."""

    notify_actors: NotifyFor
    notify_learner: Notify


NO_BELLS = Bells(notify_actors=lambda envs: None, notify_learner=lambda: None)
"""Where nobody sleeps."""


class Executor:
    """Takes each of its environments as far as it can go, in turn; none waits for another."""

    def __init__(self, env_runners: Sequence[Runner], bells: Bells) -> None:
        self.env_runners = env_runners
        self._bells = bells

    def advance(self) -> bool:
        progressed: list[int] = []
        completed = False
        for env_runner in self.env_runners:
            rollout = env_runner.rollout
            if env_runner.advance():
                progressed.append(env_runner.index)
                completed |= env_runner.rollout != rollout
        if progressed:
            self._bells.notify_actors(progressed)
        if completed:
            self._bells.notify_learner()
        return bool(progressed)

    @property
    def finished(self) -> bool:
        return all(env_runner.stage is Stage.NOTHING for env_runner in self.env_runners)

    def waits_for(self) -> str:
        return ", ".join(describe_stages(self.env_runners))

    def close(self) -> None:
        for env_runner in self.env_runners:
            env_runner.close()


def describe_stages(env_runners: Sequence[Runner]) -> list[str]:
    """What these wait for, for error messages."""
    envs_by_stage = {stage: [r.index for r in env_runners if r.stage is stage] for stage in Stage}
    return [f"{stage.value} (environments {envs})" for stage, envs in envs_by_stage.items() if envs]
