"""One update of whichever algorithm the experiment names."""

from __future__ import annotations

from htsrl.algorithms.a2c import a2c_update
from htsrl.algorithms.batch import Batch
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.ppo import PPOProgress, ppo_update
from htsrl.config import A2C, Experiment
from htsrl.policies.policy import Policy


def improve(experiment: Experiment, update: int, draft: Draft, behaviour: Policy, batch: Batch) -> dict[str, float]:
    """Improve the draft from a batch that the behaviour policy made; returns metrics of the update."""
    algorithm = experiment.algorithm
    remaining = 1 - update / experiment.num_intervals
    learning_rate = algorithm.learning_rate * (remaining if algorithm.anneal_learning_rate else 1.0)
    metrics = {"train/learning_rate": learning_rate}
    if isinstance(algorithm, A2C):
        return metrics | a2c_update(algorithm, draft, behaviour, batch, experiment.unroll_steps, learning_rate)
    clip_range = algorithm.clip_range * (remaining if algorithm.anneal_clip_range else 1.0)
    metrics["train/clip_range"] = clip_range
    progress = PPOProgress(experiment.seed, update, learning_rate, clip_range)
    return metrics | ppo_update(algorithm, draft, batch, experiment.unroll_steps, progress)
