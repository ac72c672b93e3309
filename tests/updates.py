"""Single updates of the algorithms, outside of a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from htsrl import A2C, PPO, Experiment
from htsrl.algorithms.a2c.algorithm import A2CAlgorithm, A2CObjective, A2CTargets
from htsrl.algorithms.algorithm import RunFacts, Update, build_algorithm
from htsrl.algorithms.batch import Batch
from htsrl.algorithms.lag_correction import Correction, PPOCorrection
from htsrl.algorithms.ppo.algorithm import PPOAlgorithm, PPOObjective, PPOTargets
from htsrl.algorithms.update import improve as improve_by
from htsrl.config.algorithm_settings import CommonSettings
from htsrl.policies.policy import Policy


class Lengths(NamedTuple):
    """How many steps belong to one gradient, and to one sequence."""

    unroll: int
    sequence: int


@dataclass(frozen=True)
class PPOProgress:
    """Where in a run an update of PPO is."""

    seed: int
    update: int
    learning_rate: float
    clip_range: float
    correction: PPOCorrection = "none"
    sequence_steps: int = 1


def improve(
    experiment: Experiment, update: int, draft: Any, behaviour: Policy | None, batch: Batch
) -> dict[str, float]:
    """As the learner does it."""
    discount = CommonSettings.of(experiment.algorithm).discount
    return improve_by(build_algorithm(experiment), Update(update, behaviour), draft, batch, discount)


def run_facts(unroll: int, sequence: int = 1, seed: int = 1, is_old: bool = True) -> RunFacts:
    """`is_old`: data may be of an older version."""
    return RunFacts(
        seed,
        num_updates=1,
        unroll_steps=unroll,
        sequence_steps=sequence,
        gradient_shards=1,
        overlaps_learning=is_old,
        mixes_versions=False,
    )


def a2c_update(
    settings: A2C,
    draft: Any,
    behaviour: Policy | None,
    batch: Batch,
    lengths: Lengths,
    learning_rate: float,
    correction: Correction = "delayed_gradient",
) -> dict[str, float]:
    algorithm = a2c(replace(settings, learning_rate=learning_rate), lengths, correction)
    return algorithm.improve(Update(0, behaviour), draft, batch)


def a2c_objective(
    settings: A2C, batch: Batch, targets: A2CTargets, lengths: Lengths, correction: Correction
) -> A2CObjective:
    return a2c(settings, lengths, correction).objective(Update(0), batch, targets)


def a2c(settings: A2C, lengths: Lengths, correction: Correction) -> A2CAlgorithm:
    asked = replace(settings, lag_correction=correction, anneal_learning_rate=False)
    return A2CAlgorithm(asked, run_facts(*lengths))


def ppo_update(settings: PPO, draft: Any, batch: Batch, unroll_steps: int, progress: PPOProgress) -> dict[str, float]:
    return ppo(settings, unroll_steps, progress).improve(Update(progress.update), draft, batch)


def ppo_objective(settings: PPO, batch: Batch, targets: PPOTargets, progress: PPOProgress) -> PPOObjective:
    return ppo(settings, len(batch.log_probs), progress).objective(Update(progress.update), batch, targets)


def ppo(settings: PPO, unroll_steps: int, progress: PPOProgress) -> PPOAlgorithm:
    asked = replace(
        settings,
        learning_rate=progress.learning_rate,
        clip_range=progress.clip_range,
        lag_correction=progress.correction,
        anneal_learning_rate=False,
        anneal_clip_range=False,
        num_minibatches=settings.num_minibatches or 1,
    )
    facts = run_facts(unroll_steps, progress.sequence_steps, progress.seed, is_old=progress.correction != "none")
    return PPOAlgorithm(asked, facts)
