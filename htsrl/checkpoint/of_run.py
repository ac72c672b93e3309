"""Checkpoints of a run: a cut through its memory, and what it is a cut of."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from htsrl.checkpoint.background import BackgroundCheckpoints, CheckpointTimes, Written
from htsrl.checkpoint.cut import take_cut
from htsrl.checkpoint.files import Checkpoint, checkpoints_in
from htsrl.checkpoint.rollouts import take_rollouts
from htsrl.config import NO_ENV, Config
from htsrl.config.data_source import DataSource, data_identity
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

    def take(version: int) -> Checkpoint:
        return checkpoint_of(config, block, shared, version, shared.source.completed_at_barrier(version))

    times = CheckpointTimes(
        placement.checkpoint_every_updates, placement.checkpoint_every_seconds, shared.exchange.checkpoint_time
    )
    return BackgroundCheckpoints(checkpoints_of(config), times, take, announce, beat)


def newest_checkpoint_of(config: Config, block: SharedArrays, shared: Shared) -> Checkpoint:
    """All that was reached; only once nobody works any more."""
    exchange = shared.exchange
    return checkpoint_of(config, block, shared, exchange.published_version, exchange.completed_rollouts)


def checkpoint_of(
    config: Config, block: SharedArrays, shared: Shared, version: int, completed: Words | None
) -> Checkpoint:
    """None for `completed`: environments are wherever they are, and may continue while they are copied."""
    episodes, goal = EpisodeMeter(rows=LearnerSlots(block).episodes(version)), config.experiment.stop_at_return
    document = {
        "version": version,
        "steps": version * config.experiment.batch_steps,
        "mean_return": episodes.mean_return if episodes.rows and math.isfinite(episodes.mean_return) else None,
        "goal_reached": goal is not None and episodes.has_reached(goal),
        "experiment": experiment_document(config),
        "info_keys": list(shared.storages.spec.info_names),
    }
    arrays, folder = take_cut(shared, block, version, completed), checkpoints_of(config)
    rollouts = take_rollouts(block, shared.exchange, folder, version)
    return Checkpoint({**document, **rollouts.facts}, arrays, rollouts.new, rollouts.linked)


def checkpoints_of(config: Config) -> Path:
    assert config.placement.run_dir is not None
    return checkpoints_in(config.placement.run_dir.absolute())


def experiment_document(config: Config) -> dict[str, Any]:
    """The experiment as config.json has it; of one that learns from a dataset, only which dataset that is, wherever it
    lies, and not where evaluations play."""
    document: dict[str, Any] = json.loads(to_json(config))["experiment"]
    if identity := data_identity(config.experiment.source):
        document |= {"source": str(DataSource("", identity)), "env": NO_ENV, "env_args": {}, "imports": []}
    return document
