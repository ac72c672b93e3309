"""Refuses what cannot work, before anything starts: one ConfigError that names the value, the rule and the way out."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
import types
import typing
from collections.abc import Callable
from typing import Any

import numpy as np

from htsrl.config import (
    MAX_ENVS_ON_THREADS,
    MAX_THREADS,
    Config,
    Experiment,
    Network,
    Placement,
)
from htsrl.config.algorithm_settings import CommonSettings, algorithm_name, algorithm_of, has_minibatches
from htsrl.config.field_types import converted
from htsrl.config.file import network_name
from htsrl.config.init_from import InitFrom
from htsrl.config.run_facts import RunFacts
from htsrl.config.schedule_names import BUILT_IN as BUILT_IN_SCHEDULES
from htsrl.config.schedule_names import MAX_LAG
from htsrl.errors import ConfigError

MAX_ENVS = 65_536
MAX_QUEUE = 1024
MAX_EVAL_ENVS = 1024
MAX_DEADLINE_SECONDS = 7 * 24 * 3600.0

Rule = tuple[Callable[[Any], bool], str]
AT_LEAST_1: Rule = (lambda x: x >= 1, "at least 1")
ABOVE_0: Rule = (lambda x: x > 0, "above 0")
NOT_NEGATIVE: Rule = (lambda x: x >= 0, "0 or more")
A_SHARE: Rule = (lambda x: 0 <= x <= 1, "from 0 to 1")

RULES: dict[str, Rule] = {
    "checkpoint_every_seconds": ABOVE_0,
    "checkpoint_every_updates": AT_LEAST_1,
    "clip_range": ABOVE_0,
    "deadline_seconds": (lambda x: 0 < x <= MAX_DEADLINE_SECONDS, "above 0 and at most a week"),
    "discount": A_SHARE,
    "entropy_coefficient": NOT_NEGATIVE,
    "epochs": AT_LEAST_1,
    "eval_envs": (lambda x: 1 <= x <= MAX_EVAL_ENVS, f"from 1 to {MAX_EVAL_ENVS}"),
    "eval_episodes": NOT_NEGATIVE,
    "eval_every": AT_LEAST_1,
    "eval_goal_held": AT_LEAST_1,
    "first_epoch_clip_factor": AT_LEAST_1,
    "gae_lambda": A_SHARE,
    "gradient_shards": AT_LEAST_1,
    "hidden_sizes": (lambda sizes: all(size >= 1 for size in sizes), "all at least 1"),
    "jitter_seconds": NOT_NEGATIVE,
    "keep_checkpoints": AT_LEAST_1,
    "lag": (lambda x: 0 <= x <= MAX_LAG, f"from 0 to {MAX_LAG}"),
    "learning_rate": ABOVE_0,
    "learner_workers": AT_LEAST_1,
    "log_every_steps": AT_LEAST_1,
    "max_gradient_norm": ABOVE_0,
    "max_importance_weight": AT_LEAST_1,
    "recurrent_size": AT_LEAST_1,
    "backpropagation_length": AT_LEAST_1,
    "num_actors": NOT_NEGATIVE,
    "num_envs": AT_LEAST_1,
    "num_executors": AT_LEAST_1,
    "num_minibatches": AT_LEAST_1,
    "queue_length": (lambda x: 2 <= x <= MAX_QUEUE, f"from 2 to {MAX_QUEUE}"),
    "follow_rate": (lambda x: 0 < x <= 1, "above 0 and at most 1"),
    "initial_temperature": ABOVE_0,
    "learning_starts": NOT_NEGATIVE,
    "minibatch_size": AT_LEAST_1,
    "n_step": AT_LEAST_1,
    "optimizer_epsilon": ABOVE_0,
    "replay_capacity": NOT_NEGATIVE,
    "rmsprop_decay": (lambda x: 0 <= x < 1, "from 0 to below 1"),
    "seed": (lambda x: 0 <= x < 2**63, "from 0 to 2**63 - 1"),
    "sync_interval": AT_LEAST_1,
    "target_kl": ABOVE_0,
    "temperature_learning_rate": ABOVE_0,
    "total_steps": AT_LEAST_1,
    "unroll_length": AT_LEAST_1,
    "update_to_data": ABOVE_0,
    "value_clip_range": ABOVE_0,
    "value_coefficient": NOT_NEGATIVE,
}


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
    experiment = _check_fields(
        dataclasses.replace(given, algorithm=_check_fields(given.algorithm), network=_check_fields(given.network))
    )
    placement = _check_fields(config.placement)
    experiment = dataclasses.replace(experiment, env_args=_checked_env_args(experiment))
    if experiment.init_from is not None:
        InitFrom.parse(experiment.init_from)
    _check_schedule(experiment)
    _check_network(experiment)
    _check_sizes(experiment)
    if has_minibatches(experiment.algorithm):
        algorithm = dataclasses.replace(experiment.algorithm, num_minibatches=experiment.num_minibatches)
        experiment = dataclasses.replace(experiment, algorithm=algorithm)
    _check_algorithm(experiment)
    _check_workers(placement, experiment.num_envs)
    _check_learner_workers(placement, experiment.gradient_shards)
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


def most_shards(experiment: Experiment, num_columns: int) -> int:
    """How many parts a gradient can be taken in, with so many agents in all: sequences, or steps that stand alone."""
    steps = num_columns * experiment.unroll_steps
    if has_minibatches(experiment.algorithm):
        steps = num_columns * experiment.interval_steps // experiment.num_minibatches
    return steps // experiment.sequence_steps


def check_shards(experiment: Experiment, num_columns: int) -> None:
    """Once it is known how many agents there are in all."""
    shards, length, most = experiment.gradient_shards, experiment.sequence_steps, most_shards(experiment, num_columns)
    if shards > most:
        what = f"{most} sequences of {length} steps" if length > 1 else f"{most} steps"
        raise ConfigError(f"gradient_shards={shards} is more than the {what} of a gradient; use {most} or fewer")


def _check_fields(section: Any) -> Any:
    """Every field of its type, finite, and within its rule."""
    hints = typing.get_type_hints(type(section))
    values = {}
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if field.name not in ("env", "algorithm", "network"):
            value = converted(value, hints[field.name], field.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{field.name}={value} must be finite")
        allowed, rule = RULES.get(field.name, (None, ""))
        if allowed is not None and value is not None and not allowed(value):
            raise ConfigError(f"{field.name}={value} must be {rule}")
        values[field.name] = value
    return dataclasses.replace(section, **values)


def _checked_env_args(experiment: Experiment) -> dict[str, Any]:
    """Arguments that the run's config.json can hold."""
    arguments = {name: x.item() if isinstance(x, np.generic) else x for name, x in experiment.env_args.items()}
    for name, value in arguments.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"env_args[{name!r}]={value!r} cannot be written to the run's config.json ({error}); "
                "use numbers, text, lists and objects, or pass a callable that closes over it as env"
            ) from error
    return arguments


def _check_schedule(experiment: Experiment) -> None:
    algorithm, is_own = experiment.algorithm, experiment.schedule not in BUILT_IN_SCHEDULES
    mixes_versions = experiment.mixes_versions
    if experiment.replay_schedule is not None and not mixes_versions:
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


def _check_sizes(experiment: Experiment) -> None:
    alpha, unroll, algorithm = experiment.interval_steps, experiment.unroll_steps, experiment.algorithm
    if alpha % unroll:
        raise ConfigError(
            f"sync_interval={alpha} is not a multiple of unroll_length={unroll}; use {_near_multiples(alpha, unroll)}"
        )
    capacity = CommonSettings.of(algorithm).replay_capacity
    if 0 < capacity < experiment.batch_steps:
        raise ConfigError(
            f"replay_capacity={capacity} is less than the {experiment.batch_steps} steps of one interval of all "
            "environments; use more, a shorter sync_interval or fewer environments"
        )
    gradient_steps = experiment.num_envs * unroll
    if has_minibatches(algorithm):
        batch, pieces = experiment.batch_steps, experiment.num_minibatches
        if batch % pieces:
            raise ConfigError(
                f"num_envs={experiment.num_envs} times sync_interval={alpha} gives batches of {batch}, which do not "
                f"divide into num_minibatches={pieces}; use {_near_divisors(batch, pieces)}"
            )
        gradient_steps = batch // pieces
        sequences = batch // experiment.sequence_steps
        if sequences % pieces:
            raise ConfigError(
                f"a recurrent policy learns from whole sequences, and {sequences} sequences of "
                f"{experiment.sequence_steps} steps do not divide into num_minibatches={pieces}; use "
                f"{_near_divisors(sequences, pieces)}, or another backpropagation_length"
            )
    is_by_batch = getattr(algorithm, "advantage_normalization", "") == "batch"
    normalized_steps = experiment.batch_steps if is_by_batch else gradient_steps
    if CommonSettings.of(algorithm).normalize_advantages and normalized_steps < 2:
        raise ConfigError(
            "normalize_advantages=True needs two or more steps per gradient, there is one; "
            "use larger batches or fewer minibatches, or turn it off"
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
            f"use {_near_divisors(unroll, length)}"
        )


def _check_workers(placement: Placement, num_envs: int) -> None:
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
    if num_envs > MAX_ENVS:
        raise ConfigError(f"num_envs={num_envs} is more than one run can have; use {MAX_ENVS} or fewer")
    for name, count in (("num_executors", placement.num_executors), ("num_actors", placement.num_actors)):
        if count is not None and count > num_envs:
            raise ConfigError(f"{name}={count} is more than num_envs={num_envs}; use {num_envs} or fewer")


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


def _near_multiples(value: int, unit: int) -> str:
    below, above = value // unit * unit, -(-value // unit) * unit
    return f"{below} or {above}" if below else str(above)


def _near_divisors(value: int, divisor: int) -> str:
    divisors = [d for d in range(1, value + 1) if value % d == 0]
    below = max((d for d in divisors if d < divisor), default=None)
    above = min((d for d in divisors if d > divisor), default=None)
    return " or ".join(str(d) for d in (below, above) if d is not None)
