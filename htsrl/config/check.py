"""Refuses what cannot work, before anything starts: one ConfigError that names the value, the rule and the way out."""

from __future__ import annotations

import dataclasses
import importlib.util
import types
from typing import Any

from htsrl.config import (
    MAX_ENVS_ON_THREADS,
    MAX_THREADS,
    NO_ENV,
    Config,
    Experiment,
    Network,
    Placement,
)
from htsrl.config.algorithm_settings import CommonSettings, algorithm_name, algorithm_of, has_minibatches
from htsrl.config.check_fields import checked_args, checked_fields
from htsrl.config.check_learners import check_learners
from htsrl.config.check_sizes import check_sizes, near_divisors, near_multiples
from htsrl.config.data_source import DataSource
from htsrl.config.file import network_name
from htsrl.config.init_from import InitFrom
from htsrl.config.rules import MAX_ENVS
from htsrl.config.run_facts import RunFacts
from htsrl.config.schedule_names import BUILT_IN as BUILT_IN_SCHEDULES
from htsrl.config.schedule_names import OFFLINE
from htsrl.errors import ConfigError


def check(config: Config) -> Config:
    """The configuration with every value in its declared type, and numbers that were left to htsrl chosen.

    ConfigError for the first that cannot work.
    """
    given = config.experiment
    _check_class("experiment", given, Experiment)
    _check_class("placement", config.placement, Placement)
    algorithm_name(given.algorithm)
    _check_class("network", given.network, Network)
    required = CommonSettings.of(given.algorithm).required_network
    given = dataclasses.replace(given, network=dataclasses.replace(given.network, **required))
    if not (isinstance(given.env, str) or callable(given.env)):
        raise ConfigError(f"env={given.env!r} must be a Gymnasium id or a callable that returns an environment")
    given = _checked_source(given)
    experiment = checked_fields(
        dataclasses.replace(given, algorithm=checked_fields(given.algorithm), network=checked_fields(given.network))
    )
    placement = checked_fields(config.placement)
    _check_workers_can_import(given.algorithm, placement)
    experiment = dataclasses.replace(experiment, env_args=checked_args("env_args", experiment.env_args))
    experiment = dataclasses.replace(experiment, sync_args=checked_args("sync_args", experiment.sync_args))
    check_learners(experiment, placement)
    if experiment.init_from is not None:
        InitFrom.parse(experiment.init_from)
    _check_offline(experiment, placement)
    _check_schedule(experiment)
    _check_lanes(experiment, placement)
    _check_exclusion(experiment)
    _check_network(experiment)
    _check_precision(experiment, placement)
    check_sizes(experiment.per_replica)
    if has_minibatches(experiment.algorithm):
        pieces = experiment.per_replica.num_minibatches
        algorithm = dataclasses.replace(experiment.algorithm, num_minibatches=pieces)
        experiment = dataclasses.replace(experiment, algorithm=algorithm)
    _check_algorithm(experiment.per_replica)
    _check_workers(placement, experiment)
    _check_learner_workers(placement, experiment.num_shards)
    _check_evaluation(placement)
    return Config(experiment, placement)


def _check_class(name: str, value: Any, *classes: type) -> None:
    """A class derived from one of these would be trained as what it is derived from, its own methods unused."""
    if type(value) in classes:
        return
    known = " or ".join(f"htsrl.{cls.__name__}" for cls in classes)
    if isinstance(value, classes):
        raise ConfigError(
            f"{name} is of the class {type(value).__qualname__}, whose own fields and methods would not be used; use "
            f"{known} itself"
        )
    raise ConfigError(f"{name}={value!r} must be {known}(...)")


def _check_workers_can_import(algorithm: Any, placement: Placement) -> None:
    """What a script or a notebook defines itself is a copy in every other process, which nothing can be named by."""
    if type(algorithm).__module__ == "__main__" and placement.backend != "inline":
        raise ConfigError(
            f"algorithm {type(algorithm).__qualname__.partition('.')[0]} is defined in the script or notebook that "
            "runs, and worker processes and resumed runs import it by name; put it into a file of its own and import "
            "it from there, or try it in this process alone with Placement(backend='inline')"
        )


def _checked_source(experiment: Experiment) -> Experiment:
    """With a dataset there are no environments to step, and one schedule alone."""
    if experiment.source is None:
        return experiment
    DataSource.parse(str(experiment.source))
    if experiment.schedule not in (Experiment.schedule, OFFLINE):
        raise ConfigError(
            f"schedule={experiment.schedule} says who acts when, and with source={experiment.source} nobody does; "
            "leave it out"
        )
    return dataclasses.replace(experiment, source=str(experiment.source), num_envs=0, schedule=OFFLINE)


def _check_offline(experiment: Experiment, placement: Placement) -> None:
    name, learns_offline = algorithm_name(experiment.algorithm), CommonSettings.of(experiment.algorithm).learns_offline
    if experiment.source is None:
        if learns_offline or experiment.schedule == OFFLINE:
            what = name if learns_offline else f"schedule={OFFLINE}"
            raise ConfigError(f"{what} learns from a dataset; name it with source (--source FOLDER), or use PPO")
        if experiment.num_envs < 1:
            raise ConfigError(f"num_envs={experiment.num_envs} must be at least 1")
        if experiment.env == NO_ENV:
            raise ConfigError("no environment is named; give a Gymnasium id, or a dataset with source (--source)")
        return
    if not learns_offline:
        raise ConfigError(f"{name} learns from environments, not from source={experiment.source}; use bc, cql or iql")
    if experiment.network.normalize_observations or CommonSettings.of(experiment.algorithm).normalize_rewards:
        raise ConfigError("running statistics follow environments, and a dataset has none; turn normalisation off")
    if experiment.num_replicas > 1:
        raise ConfigError(
            f"learners={experiment.learners} with parameters of their own each have environments, and a dataset has "
            "none; use --sync-rule every"
        )
    if experiment.stop_at_return is not None:
        raise ConfigError("stop_at_return looks at training episodes, of which a dataset has none; leave it out")
    wants_env = placement.eval_every is not None or placement.eval_episodes or placement.video_every is not None
    if experiment.env == NO_ENV and wants_env:
        raise ConfigError("evaluations and videos need an environment to play in; name it: `htsrl train ENV_ID ...`")


def _check_schedule(experiment: Experiment) -> None:
    algorithm, is_own = experiment.algorithm, experiment.schedule not in BUILT_IN_SCHEDULES
    mixes_versions = experiment.mixes_versions
    if experiment.replay_schedule is not None and not experiment.is_recorded:
        raise ConfigError(
            f"replay_schedule={experiment.replay_schedule} is for schedule=async; runs under "
            f"{experiment.schedule} repeat themselves from their seed"
        )
    if experiment.queue_length != Experiment.queue_length and not mixes_versions and not is_own:
        raise ConfigError(
            f"queue_length={experiment.queue_length} is for schedule=async; {experiment.schedule} has no queue: leave "
            "it out"
        )
    if experiment.lag is not None and experiment.schedule != "hts" and not is_own:
        has = "has whatever lag it comes to, see queue_length" if mixes_versions else "has a lag of 0"
        raise ConfigError(f"lag={experiment.lag} is for schedule=hts; {experiment.schedule} {has}: leave it out")
    if mixes_versions and CommonSettings.of(algorithm).normalize_rewards:
        raise ConfigError(
            "normalize_rewards=True follows every environment's return from one batch to the next, and under "
            f"schedule={experiment.schedule} a batch may miss some; turn it off with --no-normalize-rewards, or use hts"
        )


def _check_algorithm(experiment: Experiment) -> None:
    algorithm = algorithm_of(experiment.algorithm)
    algorithm(experiment.algorithm, RunFacts.of(experiment)).check()


def _check_exclusion(experiment: Experiment) -> None:
    if experiment.on_env_error == "exclude" and CommonSettings.of(experiment.algorithm).replay_capacity:
        raise ConfigError(
            f"on_env_error=exclude leaves steps out, and the replay buffer of {algorithm_name(experiment.algorithm)} "
            "does not record which; use on_env_error=truncate"
        )


def _check_network(experiment: Experiment) -> None:
    network, unroll = experiment.network, experiment.unroll_steps
    if network.policy is not None and network.encoder != "auto":
        raise ConfigError(f"policy={network.policy!r} takes the place of encoder={network.encoder}; give one of them")
    name = "" if network.policy is None else network_name(network.policy)
    has_name = isinstance(network.policy, str | type | types.FunctionType | None)
    if name is None or "<" in name or not has_name:
        raise ConfigError(
            f"policy={network.policy!r} has no name under which evaluations and resumed runs could import it; "
            "make it a class or function at the top of a module"
        )
    if network.precision == "bfloat16" and network.policy is not None:
        raise ConfigError(
            f"precision=bfloat16 is about the encoders of images that policy={name} takes the place of; leave it out, "
            "and cast in your network what it shall multiply in bfloat16"
        )
    if network.separate_value and network.policy is not None:
        raise ConfigError(f"separate_value=True does not go with policy={name}, which serves actions and values alike")
    defaults = Network()
    for setting in ("hidden_sizes", "activation"):
        if network.policy is not None and (value := getattr(network, setting)) != getattr(defaults, setting):
            raise ConfigError(
                f"{setting}={value} is about the encoder that policy={name} takes the place of; leave it out, and give "
                "your network its sizes where it is defined"
            )
    length = network.backpropagation_length
    if length is not None and network.recurrent == "none":
        raise ConfigError(
            f"backpropagation_length={length} needs a recurrent policy; use recurrent='lstm' or 'gru', or leave it out"
        )
    if length is not None and unroll % length:
        raise ConfigError(
            f"backpropagation_length={length} does not divide the {unroll} steps of an unroll; "
            f"use {near_divisors(unroll, length)}"
        )


def _check_lanes(experiment: Experiment, placement: Placement) -> None:
    lanes, num_envs = experiment.lanes, experiment.num_envs
    if lanes is None:
        return
    if num_envs % lanes:
        raise ConfigError(
            f"num_envs={num_envs} environments do not divide into lanes={lanes}; use num_envs="
            f"{near_multiples(num_envs, lanes)}"
        )
    if experiment.num_replicas > 1 or experiment.source is not None:
        what = f"learners={experiment.learners}" if experiment.source is None else f"source={experiment.source}"
        raise ConfigError(f"lanes={lanes} does not go with {what}; leave one of them out")
    if experiment.mixes_versions:
        raise ConfigError(
            f"lanes={lanes} does not go with schedule={experiment.schedule}, under which several versions may act in a "
            "rollout; use hts or sync"
        )
    if experiment.on_env_error != "stop":
        raise ConfigError(
            f"on_env_error={experiment.on_env_error} is about one environment, and lanes={lanes} step many in a call; "
            "use on_env_error=stop, or leave lanes out"
        )
    if placement.executor_threads:
        raise ConfigError(
            f"executor_threads=True gives every environment a thread, and lanes={lanes} step many in one call; leave "
            "one of them out"
        )


def _check_precision(experiment: Experiment, placement: Placement) -> None:
    precision = experiment.network.precision
    if precision != "float32" and not placement.device.startswith("cpu"):
        raise ConfigError(
            f"precision={precision} is for the CPU, and was never tried with device={placement.device}; use "
            "precision=float32"
        )


def _check_workers(placement: Placement, experiment: Experiment) -> None:
    num_envs = experiment.num_envs
    if placement.measure_costs and placement.backend == "inline":
        raise ConfigError("measure_costs=True splits costs by worker, and placement inline has none; use processes")
    if placement.executor_threads and placement.backend == "inline":
        raise ConfigError("executor_threads=True is for executors in processes, and inline has none; use processes")
    if placement.executor_threads and num_envs > MAX_ENVS_ON_THREADS:
        raise ConfigError(
            f"num_envs={num_envs} is more than one run can have on threads; use {MAX_ENVS_ON_THREADS} or fewer, or "
            "executor_threads=False"
        )
    if placement.executor_threads and num_envs > MAX_THREADS * placement.resolved_executors(num_envs, on_threads=True):
        raise ConfigError(
            f"num_envs={num_envs} on threads of num_executors={placement.num_executors} are more than {MAX_THREADS} "
            f"for one; use num_executors={-(-num_envs // MAX_THREADS)} or more"
        )
    executors = placement.resolved_executors(experiment.num_simulators, on_threads=True)
    if placement.max_running is not None and placement.max_running < executors and experiment.lanes is None:
        raise ConfigError(
            f"max_running={placement.max_running} is less than one for each of {executors} executors; use "
            f"{executors} or more, or fewer executors"
        )
    if num_envs > MAX_ENVS:
        raise ConfigError(f"num_envs={num_envs} is more than one run can have; use {MAX_ENVS} or fewer")
    if not num_envs:  # of a run that learns from a dataset: nobody to place
        return
    most, what = experiment.num_simulators, "num_envs" if experiment.lanes is None else "lanes"
    for name, count in (("num_executors", placement.num_executors), ("num_actors", placement.num_actors)):
        if count is not None and count > most:
            raise ConfigError(f"{name}={count} is more than {what}={most}; use {most} or fewer")


def _check_learner_workers(placement: Placement, gradient_shards: int) -> None:
    workers = placement.learner_workers
    if workers is None or workers == 1:
        return
    if workers > gradient_shards:
        raise ConfigError(
            f"learner_workers={workers} is more than gradient_shards={gradient_shards}, which they share out; use "
            f"{gradient_shards} or fewer, or more shards, which changes the bits of the result"
        )
    if not placement.device.startswith("cpu"):
        raise ConfigError(f"learner_workers={workers} share out work on the CPU; with device={placement.device} use 1")


def _check_evaluation(placement: Placement) -> None:
    goal = placement.stop_at_eval_return
    if placement.video_every is not None:
        for package in ("imageio", "imageio_ffmpeg"):
            if importlib.util.find_spec(package) is None:
                raise ConfigError(f"video_every needs {package}, which is not installed; pip install 'htsrl[video]'")
    if goal is not None and placement.eval_every is None:
        raise ConfigError(f"stop_at_eval_return={goal:g} needs evaluations; ask for them: --eval-every STEPS")
