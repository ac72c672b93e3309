"""Which environments live on which island, and which workers step them there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from htsrl.errors import ConfigError
from htsrl.placements.blueprint import Blueprint, Envs, share_out


def check_can_have_islands(blueprint: Blueprint) -> None:
    """Islands hand over whole rollouts, made by a version that the rollout's number tells."""
    experiment, schedule = blueprint.experiment, blueprint.schedule
    if experiment.source is not None:
        raise ConfigError("placement=ray is about environments, and a dataset has none; use placement processes")
    if blueprint.collector is not None:
        raise ConfigError("placement=ray is for environments, not for texts; use placement processes")
    if schedule.max_lag is None or schedule.mixes_versions:
        raise ConfigError(
            f"placement=ray hands over whole rollouts of one version, and schedule={experiment.schedule} mixes "
            "versions; use hts or sync, or placement processes"
        )
    if schedule.step_barrier:
        raise ConfigError(
            f"schedule={experiment.schedule} waits for all environments at every step, and islands meet once per "
            "interval; use sync, which has the same bits, or placement processes"
        )


def with_islands(blueprint: Blueprint, cpus: Sequence[float]) -> Blueprint:
    """Environments shared out to islands by their cores, and on each to executors and actors."""
    placement, num_simulators = blueprint.config.placement, blueprint.experiment.num_simulators
    if len(cpus) > num_simulators:
        raise ConfigError(
            f"nodes={len(cpus)} are more than {num_simulators} environments; use {num_simulators} or fewer"
        )
    islands = share_by_weight(num_simulators, cpus)
    executors, actors = [], []
    for envs, cores in zip(islands, cpus, strict=True):
        num_executors = placement.num_executors or max(int(cores), 1)
        if blueprint.on_threads:
            num_executors = placement.resolved_executors(len(envs), on_threads=True)
        executors += _shares(blueprint, envs, num_executors)
        actors += _shares(blueprint, envs, placement.resolved_actors(blueprint.on_threads))
    # Clocks of several machines cannot be put on one time line.
    config = replace(blueprint.config, placement=replace(placement, timeline=False))
    return replace(
        blueprint,
        config=config,
        islands=islands,
        executor_envs=tuple(executors),
        actor_envs=tuple(actors or executors),
    )


def share_by_weight(num_envs: int, weights: Sequence[float]) -> tuple[Envs, ...]:
    """Neighbouring environments to each, in proportion, and at least one."""
    bounds = np.round(np.cumsum([0.0, *weights]) / sum(weights) * num_envs).astype(int)
    for place in range(1, len(bounds)):
        bounds[place] = max(bounds[place], bounds[place - 1] + 1)
    for place in range(len(bounds) - 1, 0, -1):
        bounds[place] = min(bounds[place], num_envs - (len(weights) - place))
    return tuple(tuple(range(begin, end)) for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))


def _shares(blueprint: Blueprint, envs: Envs, num_workers: int) -> list[Envs]:
    """Of an island: each worker has environments of one replica."""
    shares: list[Envs] = []
    for _, group in groupby(envs, blueprint.replica_of):
        own = tuple(group)
        count = min(max(round(num_workers * len(own) / len(envs)), 1), len(own)) if num_workers else 0
        shares += [tuple(own[place] for place in share) for share in share_out(len(own), count)] if count else []
    return shares
