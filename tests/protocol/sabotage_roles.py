"""In worker processes, breaks the rule that the variable SABOTAGE names."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any

from helpers import in_worker_process

from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.placements.blueprint import Blueprint
from htsrl.roles.shared import Shared
from htsrl.schedules.fixed_lag import FixedLag
from htsrl.schedules.schedule import Schedule
from htsrl.sources.source import Fields

SABOTAGE_VARIABLE = "SABOTAGE"
PATIENCE_SECONDS = 60.0


def off_by(versions: int, schedule: Schedule) -> FixedLag:
    """A schedule that acts with another version than it should."""
    assert isinstance(schedule, FixedLag)
    return replace(schedule, max_lag=schedule.max_lag - versions)


build_actor, build_learner = Blueprint.build_actor, Blueprint.build_learner


def build_actor_of_another_version(self: Blueprint, index: int, shared: Shared, *arguments: Any, **named: Any) -> Any:
    return build_actor(self, index, replace(shared, schedule=off_by(-1, shared.schedule)), *arguments, **named)


def build_hasty_learner(self: Blueprint, block: SharedArrays, shared: Shared, *arguments: Any, **named: Any) -> Any:
    """Publishes the next version before it has learned from the storage, and executors make use of it."""
    learner = build_learner(self, block, shared, *arguments, **named)
    learn = learner.learn

    def publish_then_learn(fields: Fields) -> dict[str, float]:
        shared.exchange.published_version = learner.update + 1
        learner._outlets.notify_executors()
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
