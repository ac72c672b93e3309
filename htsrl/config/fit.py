"""Numbers that nobody asked for follow from those that somebody did; what is chosen is said in a line each."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from htsrl.config import MAX_BACKPROPAGATION, USUAL_MINIBATCHES, Experiment
from htsrl.config.algorithm_settings import CommonSettings, has_minibatches
from htsrl.config.check_sizes import max_shards


def fitted(experiment: Experiment, asked: Collection[str]) -> Experiment:
    """A preset's settings, changed where they do not go with the ones that were `asked` for by name."""
    algorithm = experiment.algorithm
    if experiment.mixes_versions and "normalize_rewards" not in asked:
        experiment = replace(experiment, algorithm=replace(algorithm, normalize_rewards=False))
    algorithm = experiment.algorithm
    if has_minibatches(algorithm) and algorithm.num_minibatches and _can_be_cut(experiment):
        if "num_minibatches" not in asked:
            pieces = experiment.per_replica.minibatches_near(algorithm.num_minibatches)
            experiment = replace(experiment, algorithm=replace(algorithm, num_minibatches=pieces))
        if "gradient_shards" not in asked:
            own = experiment.per_replica
            most = max(max_shards(own, own.num_envs) * experiment.gradient_shards // experiment.num_shards, 1)
            experiment = replace(experiment, gradient_shards=min(experiment.gradient_shards, most))
    return experiment


def _can_be_cut(experiment: Experiment) -> bool:
    """Whether the sizes make sense at all; if they do not, the check says so."""
    alpha, unroll, length = (
        experiment.interval_steps,
        experiment.unroll_steps,
        experiment.network.backpropagation_length,
    )
    if experiment.learners < 1 or experiment.num_envs % experiment.learners:
        return False
    if min(experiment.num_envs, alpha, unroll, 1 if length is None else length) < 1:
        return False
    return alpha % unroll == 0 and unroll % experiment.sequence_steps == 0


def choices(given: Experiment, chosen: Experiment) -> list[str]:
    """What was chosen in place of a usual number, and why."""
    lines = []
    if has_minibatches(given.algorithm):
        wished = given.algorithm.num_minibatches or USUAL_MINIBATCHES
        own = chosen.per_replica
        if own.num_minibatches != wished:
            lines.append(
                f"--num-minibatches {own.num_minibatches}, for {_batch(own)} cannot be cut into the usual "
                f"{wished} of equal size, two steps or more"
            )
    if chosen.gradient_shards != given.gradient_shards:
        lines.append(
            f"--gradient-shards {chosen.gradient_shards}, for a minibatch has no more to share than that; "
            f"{given.gradient_shards} are usual"
        )
    if CommonSettings.of(chosen.algorithm).normalize_rewards != CommonSettings.of(given.algorithm).normalize_rewards:
        lines.append(f"--no-normalize-rewards, which does not go with --schedule {chosen.schedule}")
    length, recurrent = chosen.sequence_steps, chosen.network.recurrent
    if recurrent != "none" and chosen.network.backpropagation_length is None and length > MAX_BACKPROPAGATION:
        lines.append(
            f"--backpropagation-length {length}, for the {chosen.unroll_steps} steps of an unroll do not divide by "
            f"{MAX_BACKPROPAGATION} or a number near it"
        )
    return [f"chosen    {line}" for line in lines]


def _batch(experiment: Experiment) -> str:
    length = experiment.sequence_steps
    if length > 1:
        return f"{experiment.batch_steps // length} sequences of {length} steps"
    return f"{experiment.batch_steps} steps"
