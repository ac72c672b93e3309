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
    clip_range = _clip_range(algorithm, _remaining(experiment, update))
    decoupled = is_decoupled(algorithm, experiment.learns_meanwhile)
    return PPOObjective(algorithm, batch, targets, clip_range, decoupled, experiment.sequence_steps)


def _optimise(
    experiment: Experiment, update: int, draft: Draft, behaviour: Policy | None, batch: Batch
) -> dict[str, float]:
    algorithm = experiment.algorithm
    remaining = _remaining(experiment, update)
    learning_rate = algorithm.learning_rate * (remaining if algorithm.anneal_learning_rate else 1.0)
    metrics = {"train/learning_rate": learning_rate}
    if isinstance(algorithm, A2C):
        correction = correction_of(algorithm, experiment.queues)
        return metrics | a2c_update(algorithm, draft, behaviour, batch, _lengths(experiment), learning_rate, correction)
    clip_range = _clip_range(algorithm, remaining)
    metrics["train/clip_range"] = clip_range
    progress = PPOProgress(
        experiment.seed,
        update,
        learning_rate,
        clip_range,
        is_decoupled(algorithm, experiment.learns_meanwhile),
        experiment.sequence_steps,
    )
    return metrics | ppo_update(algorithm, draft, batch, experiment.unroll_steps, progress)


def _lengths(experiment: Experiment) -> Lengths:
    return Lengths(experiment.unroll_steps, experiment.sequence_steps)


def _remaining(experiment: Experiment, update: int) -> float:
    return 1 - update / experiment.num_intervals


def _clip_range(algorithm: PPO, remaining: float) -> float:
    return algorithm.clip_range * (remaining if algorithm.anneal_clip_range else 1.0)


def _with_scaled_rewards(experiment: Experiment, policy: Policy, batch: Batch) -> Batch:
    """Take the rewards into the new version's running statistics, and scale them by those."""
    if policy.reward_scale is None:
        return batch
    steps, discount = batch.steps, experiment.algorithm.discount
    ends_TB = steps.terminated_TB | steps.truncated_TB
    policy.reward_scale.take_in(steps.rewards_TB, ends_TB, discount, batch.learned_rows())
    return batch.with_rewards(policy.reward_scale(steps.rewards_TB))
