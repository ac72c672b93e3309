"""One update of whichever algorithm the experiment names."""

from __future__ import annotations

from htsrl.algorithms.a2c import A2CObjective, Lengths, a2c_update
from htsrl.algorithms.batch import Batch, flat_steps
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.lag_correction import correction_of, is_decoupled
from htsrl.algorithms.objective import Objective, Targets
from htsrl.algorithms.ppo import PPOObjective, PPOProgress, ppo_update
from htsrl.config import A2C, PPO, Experiment
from htsrl.policies.policy import Policy


def improve(
    experiment: Experiment, update: int, draft: Draft, behaviour: Policy | None, batch: Batch
) -> dict[str, float]:
    """Improve the draft from a batch that the behaviour policy made, or many did; returns metrics of the update."""
    metrics = _optimise(experiment, update, draft, behaviour, _with_scaled_rewards(experiment, draft.policy, batch))
    if draft.policy.observation_scales is not None:
        # Only now: while it was optimised, the policy had to see what it saw when its update began.
        learned = batch.learned_rows()
        scales = draft.policy.observation_scales
        scales.take_in({name: flat_steps(batch.observations[name])[learned] for name in scales.names})
    return metrics


def objective_for(experiment: Experiment, update: int, batch: Batch, targets: Targets) -> Objective:
    """What the update minimises, for those who only take gradients of it."""
    algorithm = experiment.algorithm
    if isinstance(algorithm, A2C):
        correction = correction_of(algorithm, experiment.queues)
        return A2CObjective(algorithm, batch, targets, _lengths(experiment), correction)
    return PPOObjective(algorithm, batch, targets, _progress(experiment, algorithm, update))


def _optimise(
    experiment: Experiment, update: int, draft: Draft, behaviour: Policy | None, batch: Batch
) -> dict[str, float]:
    algorithm, learning_rate = experiment.algorithm, _learning_rate(experiment, update)
    metrics = {"train/learning_rate": learning_rate}
    if isinstance(algorithm, A2C):
        correction = correction_of(algorithm, experiment.queues)
        return metrics | a2c_update(algorithm, draft, behaviour, batch, _lengths(experiment), learning_rate, correction)
    progress = _progress(experiment, algorithm, update)
    metrics["train/clip_range"] = progress.clip_range
    return metrics | ppo_update(algorithm, draft, batch, experiment.unroll_steps, progress)


def _progress(experiment: Experiment, algorithm: PPO, update: int) -> PPOProgress:
    return PPOProgress(
        experiment.seed,
        update,
        _learning_rate(experiment, update),
        algorithm.clip_range * (_remaining(experiment, update) if algorithm.anneal_clip_range else 1.0),
        is_decoupled(algorithm, experiment.learns_meanwhile),
        experiment.sequence_steps,
    )


def _lengths(experiment: Experiment) -> Lengths:
    return Lengths(experiment.unroll_steps, experiment.sequence_steps)


def _learning_rate(experiment: Experiment, update: int) -> float:
    algorithm = experiment.algorithm
    return algorithm.learning_rate * (_remaining(experiment, update) if algorithm.anneal_learning_rate else 1.0)


def _remaining(experiment: Experiment, update: int) -> float:
    return 1 - update / experiment.num_intervals


def _with_scaled_rewards(experiment: Experiment, policy: Policy, batch: Batch) -> Batch:
    """Take the rewards into the new version's running statistics, and scale them by those."""
    if policy.reward_scale is None:
        return batch
    steps, discount = batch.steps, experiment.algorithm.discount
    ends_TB = steps.terminated_TB | steps.truncated_TB
    policy.reward_scale.take_in(steps.rewards_TB, ends_TB, discount, batch.learned_rows())
    return batch.with_rewards(policy.reward_scale(steps.rewards_TB))
