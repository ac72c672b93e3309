"""Refuses what several learners cannot have."""

from __future__ import annotations

from importlib import import_module

from htsrl.config import Experiment, Placement
from htsrl.config.algorithm_settings import CommonSettings, algorithm_name
from htsrl.config.check_sizes import near_multiples
from htsrl.config.sync_rule_names import EVERY, load_sync_rule
from htsrl.errors import ConfigError


def check_learners(experiment: Experiment, placement: Placement) -> None:
    learners, envs, rule = experiment.learners, experiment.num_envs, experiment.sync_rule
    load_sync_rule(rule)
    if learners == 1:
        if rule != EVERY or experiment.sync_args:
            raise ConfigError(f"sync_rule={rule} is for several learners, and there is one; give --learners 2 or more")
        return
    if envs % learners:
        raise ConfigError(
            f"num_envs={envs} does not divide into learners={learners}; use {near_multiples(envs, learners)}"
        )
    import_module("htsrl.learners.make").make_rule(experiment)  # by name, for that package stands above this one
    if experiment.num_replicas == 1:
        return
    _check_replicas(experiment, placement)


def _check_replicas(experiment: Experiment, placement: Placement) -> None:
    """What cannot be had beside learners with parameters of their own."""
    learners, common = experiment.learners, CommonSettings.of(experiment.algorithm)
    if experiment.mixes_versions:
        raise ConfigError(
            f"learners={learners} meet at barriers, and schedule={experiment.schedule} has none; use hts, or "
            "--sync-rule every"
        )
    if common.replay_capacity:
        raise ConfigError(
            f"learners={learners} would each need a replay buffer of {algorithm_name(experiment.algorithm)}'s, and a "
            "run has one; use --sync-rule every, or an algorithm without"
        )
    if not placement.device.startswith("cpu"):
        raise ConfigError(f"learners={learners} with device={placement.device} is not built; use the CPU")
    if (placement.learner_workers or 1) > 1:
        raise ConfigError(
            f"learner_workers={placement.learner_workers} shares out the gradients of one learner, and "
            f"learners={learners} have a process each; leave it out, or use --sync-rule every"
        )
    for name, count in (("num_executors", placement.num_executors), ("num_actors", placement.num_actors)):
        if count and count % learners and placement.backend == "processes":
            raise ConfigError(
                f"{name}={count} cannot be shared out to learners={learners} evenly; use "
                f"{near_multiples(count, learners)}"
            )
    factor = experiment.sync_args.get("momentum_factor", 1)
    if factor != 1 and common.optimizer != "adam":
        raise ConfigError(f"sync_args momentum_factor={factor} is for Adam; {common.optimizer} has no momentum")
