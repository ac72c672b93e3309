"""Refuses numbers of steps that do not divide into one another: intervals, unrolls, minibatches, sequences, shards."""

from __future__ import annotations

from htsrl.config import Experiment
from htsrl.config.algorithm_settings import CommonSettings, has_minibatches
from htsrl.errors import ConfigError


def max_shards(experiment: Experiment, num_columns: int) -> int:
    """How many parts a gradient can be taken in, with so many agents in all: sequences, or steps that stand alone."""
    steps = num_columns * experiment.unroll_steps
    if has_minibatches(experiment.algorithm):
        steps = num_columns * experiment.interval_steps // experiment.num_minibatches
    return steps // experiment.sequence_steps


def check_shards(experiment: Experiment, num_columns: int) -> None:
    """Once it is known how many agents there are in all."""
    shards, length, most = experiment.num_shards, experiment.sequence_steps, max_shards(experiment, num_columns)
    if shards > most:
        what = f"{most} sequences of {length} steps" if length > 1 else f"{most} steps"
        raise ConfigError(f"gradient_shards={shards} is more than the {what} of a gradient; use {most} or fewer")


def check_sizes(experiment: Experiment) -> None:
    alpha, unroll, algorithm = experiment.interval_steps, experiment.unroll_steps, experiment.algorithm
    if alpha % unroll:
        raise ConfigError(
            f"sync_interval={alpha} is not a multiple of unroll_length={unroll}; use {near_multiples(alpha, unroll)}"
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
                f"divide into num_minibatches={pieces}; use {near_divisors(batch, pieces)}"
            )
        gradient_steps = batch // pieces
        sequences = batch // experiment.sequence_steps
        if sequences % pieces:
            raise ConfigError(
                f"a recurrent policy learns from whole sequences, and {sequences} sequences of "
                f"{experiment.sequence_steps} steps do not divide into num_minibatches={pieces}; use "
                f"{near_divisors(sequences, pieces)}, or another backpropagation_length"
            )
    is_by_batch = getattr(algorithm, "advantage_normalization", "") == "batch"
    normalized_steps = experiment.batch_steps if is_by_batch else gradient_steps
    if CommonSettings.of(algorithm).normalize_advantages and normalized_steps < 2:
        raise ConfigError(
            "normalize_advantages=True needs two or more steps per gradient, there is one; "
            "use larger batches or fewer minibatches, or turn it off"
        )


def near_multiples(value: int, unit: int) -> str:
    below, above = value // unit * unit, -(-value // unit) * unit
    return f"{below} or {above}" if below else str(above)


def near_divisors(value: int, divisor: int) -> str:
    divisors = [d for d in range(1, value + 1) if value % d == 0]
    below = max((d for d in divisors if d < divisor), default=None)
    above = min((d for d in divisors if d > divisor), default=None)
    return " or ".join(str(d) for d in (below, above) if d is not None)
