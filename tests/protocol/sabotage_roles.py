"""In worker processes, breaks the rule that the variable SABOTAGE names."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import Any

from helpers import in_worker_process

from htsrl.dataflow.memory import SharedArrays
from htsrl.dataflow.shared import Shared
from htsrl.placements.blueprint import Blueprint
from htsrl.roles.feed import Fields
from htsrl.schedules.schedule import LooseSchedule, Schedule

SABOTAGE_VARIABLE = "SABOTAGE"
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class OffBy:
    """A schedule that acts with another version than it should."""

    schedule: Schedule
    versions: int

    @property
    def step_barrier(self) -> bool:
        return self.schedule.step_barrier

    def acting_version(self, rollout: int) -> int:
        return max(self.schedule.acting_version(rollout) + self.versions, 0)


build_actor, build_learner = Blueprint.build_actor, Blueprint.build_learner


def build_actor_of_another_version(self: Blueprint, index: int, shared: Shared, *arguments: Any, **named: Any) -> Any:
    assert not isinstance(shared.schedule, LooseSchedule)
    return build_actor(self, index, replace(shared, schedule=OffBy(shared.schedule, -1)), *arguments, **named)


def build_hasty_learner(self: Blueprint, memory: SharedArrays, shared: Shared, *arguments: Any, **named: Any) -> Any:
    """Publishes the next version before it has learned from the storage, and executors make use of it."""
    learner = build_learner(self, memory, shared, *arguments, **named)
    learn = learner.learn

    def publish_then_learn(fields: Fields) -> dict[str, float]:
        shared.exchange.published_version = learner.update + 1
        learner._notify_executors()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            rollouts, rows = shared.exchange.tickets.rollout_and_row(shared.exchange.answers)
            if (storage_is_rewritten := (rollouts == learner.update + 2) & (rows > 0)).any():
                break
            time.sleep(0.01)
        assert storage_is_rewritten.any(), "nobody made use of the version that was published too early"
        return learn(fields)

    learner.learn = publish_then_learn  # type: ignore[method-assign]
    return learner


if in_worker_process() and os.environ.get(SABOTAGE_VARIABLE) == "hasty learner":
    Blueprint.build_learner = build_hasty_learner  # type: ignore[method-assign]
if in_worker_process() and os.environ.get(SABOTAGE_VARIABLE) == "actor of another version":
    Blueprint.build_actor = build_actor_of_another_version  # type: ignore[method-assign]
