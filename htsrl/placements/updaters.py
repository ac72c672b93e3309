"""Builds what makes an update of a batch: with gradient, finisher and models, and the meetings of several learners.

It imports torch; executors do without.
"""

from __future__ import annotations

from typing import NamedTuple

from htsrl.algorithms.gradient import Gradient, GradientShards
from htsrl.dataflow.gradient_orders import Helpers, Wait
from htsrl.dataflow.parameters import ParameterRing
from htsrl.dataflow.replicas import ReplicaWords
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.learners.make import averages_optimizer
from htsrl.placements.blueprint import Blueprint
from htsrl.roles.meetings import Meetings, merged_models
from htsrl.roles.role import Notify
from htsrl.roles.rollout_finisher import Finisher, RolloutFinisher
from htsrl.roles.shared import Shared
from htsrl.roles.updater import Updater, UpdaterState


class UpdaterSite(NamedTuple):
    """Where an updater works."""

    replica: int
    block: SharedArrays
    """Of all replicas."""
    shared: Shared
    """The same."""
    parameters: ParameterRing
    """The replica's own."""
    beat: Notify
    """Its sign of life in an update."""


def build_updater(blueprint: Blueprint, site: UpdaterSite, helpers: Helpers | None = None) -> Updater:
    """Without `helpers` it takes all shards of its gradients itself."""
    has_replicas, own_block = blueprint.num_replicas > 1, blueprint.block_of(site.block, site.replica)
    shards = blueprint.learner_shards[0] if helpers else range(blueprint.experiment.num_shards)
    gradient_shards = GradientShards.over(own_block, site.parameters, site.beat)
    gradient = Gradient(gradient_shards, shards, site.parameters.modules, helpers)
    own = site.shared.of_envs(blueprint.envs_of(site.replica)) if has_replicas else site.shared
    has_rollouts = not site.shared.schedule.mixes_versions and bool(blueprint.executor_envs)
    finisher: Finisher | None = RolloutFinisher(own, site.parameters, blueprint.shape) if has_rollouts else None
    if blueprint.collector is not None:
        finisher = blueprint.collector.build_finisher(own, site.parameters)
    rule = blueprint.rule if has_replicas else None
    state = UpdaterState(site.parameters, gradient, finisher, blueprint.declared_models(), rule)
    return Updater(blueprint.experiment.of_replica(site.replica), own, state)


def build_meetings(blueprint: Blueprint, block: SharedArrays, parameters: ParameterRing, wait: Wait) -> Meetings:
    replicas = range(1, blueprint.num_replicas)
    others = [blueprint.build_parameters(block, replica=replica) for replica in replicas]
    models = merged_models([parameters, *others], block, averages_optimizer(blueprint.experiment))
    return Meetings(blueprint.rule, ReplicaWords(block), models, others, wait)
