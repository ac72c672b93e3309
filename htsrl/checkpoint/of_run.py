"""Checkpoints of a run: a cut through its memory, and what it is a cut of."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from htsrl.checkpoint.background import BackgroundCheckpoints, Written
from htsrl.checkpoint.cut import take_cut, take_queued_cut
from htsrl.checkpoint.files import Checkpoint
from htsrl.config import Config
from htsrl.config_file import to_json
from htsrl.dataflow.exchange import Words
from htsrl.dataflow.learner_slots import LearnerSlots
from htsrl.dataflow.memory import SharedArrays
from htsrl.dataflow.shared import Shared
from htsrl.metrics.episodes import EpisodeMeter
from htsrl.run_folder import RunFolder


def background_checkpoints(
    config: Config, memory: SharedArrays, shared: Shared, announce: Callable[[Written], None]
) -> BackgroundCheckpoints:
    """The learner's: a cut at the barrier before an update, when every environment has completed its rollout."""
    placement = config.placement
    assert placement.run_dir is not None

    def take(version: int) -> Checkpoint:
        return checkpoint_of(config, memory, shared, version, np.full(config.experiment.num_envs, version + 1))

    return BackgroundCheckpoints(
        RunFolder(placement.run_dir).checkpoints_dir,
        placement.checkpoint_every_updates,
        placement.checkpoint_every_seconds,
        shared.exchange.checkpoint_time,
        take,
        announce,
    )


def newest_checkpoint_of(config: Config, memory: SharedArrays, shared: Shared) -> Checkpoint:
    """All that was reached; only once nobody works any more."""
    exchange = shared.exchange
    return checkpoint_of(config, memory, shared, exchange.published_version, exchange.completed_rollouts)


def checkpoint_of(config: Config, memory: SharedArrays, shared: Shared, version: int, completed: Words) -> Checkpoint:
    """Where rollouts queue, `completed` says nothing: environments are wherever they are."""
    returns, lengths = LearnerSlots(memory).episodes(version)
    episodes, goal = EpisodeMeter(returns, lengths), config.experiment.stop_at_return
    document = {
        "version": version,
        "steps": version * config.experiment.batch_steps,
        "mean_return": episodes.mean_return if returns and math.isfinite(episodes.mean_return) else None,
        "goal_reached": goal is not None and episodes.has_reached(goal),
        "experiment": experiment_document(config),
    }
    queued = shared.queue is not None
    cut = take_queued_cut(shared, memory, version) if queued else take_cut(shared, memory, version, completed)
    return Checkpoint(document, cut)


def experiment_document(config: Config) -> dict[str, Any]:
    """The experiment as config.json has it."""
    document: dict[str, Any] = json.loads(to_json(config))["experiment"]
    return document
