"""One update of whichever algorithm: what is the same for all of them is done around it."""

from __future__ import annotations

from htsrl.algorithms.algorithm import Algorithm, Metrics, Update
from htsrl.algorithms.batch import Batch, flat_steps
from htsrl.algorithms.draft import Draft
from htsrl.policies.policy import Policy


def improve(algorithm: Algorithm, update: Update, draft: Draft, batch: Batch, discount: float) -> Metrics:
    """Improve the draft from a batch; running statistics of rewards and observations follow it."""
    metrics = algorithm.improve(update, draft, _with_scaled_rewards(draft.policy, batch, discount))
    if draft.policy.observation_scales is not None:
        # Only now: while it was optimised, the policy had to see what it saw when its update began.
        learned = batch.learned_rows()
        scales = draft.policy.observation_scales
        scales.take_in({name: flat_steps(batch.observations[name])[learned] for name in scales.names})
    return metrics


def _with_scaled_rewards(policy: Policy, batch: Batch, discount: float) -> Batch:
    """Take the rewards into the new version's running statistics, and scale them by those."""
    if policy.reward_scale is None:
        return batch
    steps = batch.steps
    ends_TB = steps.terminated_TB | steps.truncated_TB
    policy.reward_scale.take_in(steps.rewards_TB, ends_TB, discount, batch.learned_rows())
    return batch.with_rewards(policy.reward_scale(steps.rewards_TB))
