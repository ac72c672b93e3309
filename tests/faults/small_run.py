"""A small run of CartPole as an experiment and as a command line, and what it comes to when nothing happens to it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from helpers import Outcome, run

from htsrl import A2C, Experiment, Placement, RunResult, resume
from htsrl.config import AlgorithmSettings

Schedule = Literal["hts", "sync", "lockstep", "async"]

# The limit cuts some episodes and lets others fall over.
_EXPERIMENT = Experiment("CartPole-v1", {"max_episode_steps": 20}, algorithm=A2C(), num_envs=4, sync_interval=5)
_FLAGS = ("CartPole-v1", "--env-arg", "max_episode_steps=20", "--num-envs", "4", "--sync-interval", "5")
_QUIETLY: dict[str, Any] = {"tensorboard": False, "progress": "off", "log_every_steps": 1}


def small_experiment(
    num_updates: int,
    schedule: Schedule = "hts",
    gradient_shards: int = 1,
    algorithm: AlgorithmSettings = _EXPERIMENT.algorithm,
    lag: int | None = None,
) -> Experiment:
    return replace(
        _EXPERIMENT,
        total_steps=num_updates * _EXPERIMENT.batch_steps,
        schedule=schedule,
        gradient_shards=gradient_shards,
        algorithm=algorithm,
        lag=lag,
    )


def small_flags(num_updates: int) -> tuple[str, ...]:
    """The same for `htsrl train`."""
    return (*_FLAGS, "--total-steps", str(num_updates * _EXPERIMENT.batch_steps))


@cache
def oracle(
    num_updates: int,
    schedule: Schedule = "hts",
    gradient_shards: int = 1,
    algorithm: AlgorithmSettings = _EXPERIMENT.algorithm,
    lag: int | None = None,
) -> Outcome:
    """All in this process, undisturbed."""
    return run(small_experiment(num_updates, schedule, gradient_shards, algorithm, lag), log_every_steps=1)


def quiet_placement(**settings: Any) -> Placement:
    return Placement(**(_QUIETLY | settings))


def resume_inline(run_dir: Path) -> RunResult:
    return resume(run_dir, placement=quiet_placement(backend="inline"))
