"""The arrays of a run's shared block, in their order: who declares which is told in docs/architecture.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from htsrl.config.algorithm_settings import CommonSettings
from htsrl.dataflow.capsules import capsule_arrays, num_places_for
from htsrl.dataflow.exchange import control_arrays
from htsrl.dataflow.gradient_orders import gradient_arrays
from htsrl.dataflow.learner_slots import learner_arrays
from htsrl.dataflow.replicas import replica_arrays
from htsrl.dataflow.shared_arrays import ArraySpec
from htsrl.dataflow.versions import num_slots_for
from htsrl.metrics.episodes import WINDOW
from htsrl.sources.priorities import PriorityRule
from htsrl.sources.replay_buffer import replay_arrays
from htsrl.timeline.arrays import TimelineShape

if TYPE_CHECKING:
    from htsrl.placements.blueprint import Blueprint


def block_specs(blueprint: Blueprint) -> list[ArraySpec]:
    trajectory, num_envs = blueprint.trajectory, blueprint.experiment.num_simulators
    num_rows, max_lag = trajectory.num_steps * trajectory.num_columns, blueprint.schedule.max_lag
    rings = [*blueprint.parameter_specs, *blueprint.model_specs]
    num_parameters = max(spec.shape[-1] for spec in rings if spec.name.endswith("parameter_slots"))
    num_shards, num_learners = blueprint.experiment.num_shards, len(blueprint.learner_shards)
    gradients = gradient_arrays(num_shards, num_parameters, num_learners, num_rows, blueprint.num_targets)
    return [
        *control_arrays(num_envs, blueprint.num_workers),
        *trajectory.arrays(),
        *capsule_arrays(num_envs, num_places_for(max_lag)),
        *rings,
        *learner_arrays(WINDOW, 2 + len(trajectory.info_names), num_slots_for(max_lag)),
        *gradients,
        *_replica_arrays(blueprint, gradients, num_slots_for(max_lag)),
        *blueprint.schedule.arrays(num_envs),
        *(_timeline_shape(blueprint).arrays() if blueprint.config.placement.timeline else ()),
        *replay_arrays(trajectory, replay_capacity(blueprint), priority_rule(blueprint)),
    ]


def replay_capacity(blueprint: Blueprint) -> int:
    return CommonSettings.of(blueprint.experiment.algorithm).replay_capacity


def priority_rule(blueprint: Blueprint) -> PriorityRule | None:
    num_new = blueprint.trajectory.num_steps * blueprint.trajectory.num_columns
    return PriorityRule.of(CommonSettings.of(blueprint.experiment.algorithm), num_new)


def _replica_arrays(blueprint: Blueprint, gradients: Sequence[ArraySpec], num_slots: int) -> list[ArraySpec]:
    if blueprint.num_replicas == 1:
        return []
    rings = (*blueprint.parameter_specs, *blueprint.model_specs)
    return replica_arrays(blueprint.num_replicas, rings, gradients, num_slots, blueprint.rule.state_size)


def _timeline_shape(blueprint: Blueprint) -> TimelineShape:
    num_envs, max_lag = blueprint.experiment.num_simulators, blueprint.schedule.max_lag
    num_tracks = blueprint.num_workers + (num_envs if blueprint.on_threads else 0)
    return TimelineShape(num_tracks, num_envs, depth=3 + (max_lag or 0))
