"""Checkpoints of a run: a cut through its memory, and what it is a cut of."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from htsrl.checkpoint.background import BackgroundCheckpoints, CheckpointTimes, Written
from htsrl.checkpoint.cut import take_cut
from htsrl.checkpoint.files import Checkpoint, checkpoints_in
from htsrl.config import Config
from htsrl.config.file import to_json
from htsrl.dataflow.exchange import Words
from htsrl.dataflow.learner_slots import LearnerSlots
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.metrics.episodes import EpisodeMeter
from htsrl.roles.shared import Shared


def background_checkpoints(
    config: Config,
    block: SharedArrays,
    shared: Shared,
    announce: Callable[[Written], None],
    beat: Callable[[], None] = lambda: None,
) -> BackgroundCheckpoints:
    """The learner's: a cut at the barrier before an update, or wherever environments stand if there is none."""
    placement = config.placement
    assert placement.run_dir is not None

    def take(version: int) -> Checkpoint:
        return checkpoint_of(config, block, shared, version, shared.source.completed_at_barrier(version))

    times = CheckpointTimes(
        placement.checkpoint_every_updates, placement.checkpoint_every_seconds, shared.exchange.checkpoint_time
    )
    return BackgroundCheckpoints(checkpoints_in(placement.run_dir.absolute()), times, take, announce, beat)


def newest_checkpoint_of(config: Config, block: SharedArrays, shared: Shared) -> Checkpoint:
    """All that was reached; only once nobody works any more."""
    exchange = shared.exchange
    return checkpoint_of(config, block, shared, exchange.published_version, exchange.completed_rollouts)


def checkpoint_of(
    config: Config, block: SharedArrays, shared: Shared, version: int, completed: Words | None
) -> Checkpoint:
    """None for `completed`: environments are wherever they are, and may go on while they are copied."""
    episodes, goal = EpisodeMeter(rows=LearnerSlots(block).episodes(version)), config.experiment.stop_at_return
    document = {
        "version": version,
        "steps": version * config.experiment.batch_steps,
        "mean_return": episodes.mean_return if episodes.rows and math.isfinite(episodes.mean_return) else None,
        "goal_reached": goal is not None and episodes.has_reached(goal),
        "experiment": experiment_document(config),
        "info_keys": list(shared.storages.spec.info_names),
    }
    return Checkpoint(document, take_cut(shared, block, version, completed))


def experiment_document(config: Config) -> dict[str, Any]:
    """The experiment as config.json has it."""
    document: dict[str, Any] = json.loads(to_json(config))["experiment"]
    return document
