"""What the lag of hts costs an algorithm: from runs that were compared with sync, by optimizer steps an update.

A lag of one version is as much as one update moves the policy. How much that costs depends on the task: what is known
is said, and sync, which has no lag, is predicted beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from htsrl.config import Experiment
from htsrl.config.algorithm_settings import algorithm_name
from htsrl.planning.measure import StepCosts
from htsrl.planning.model import best


@dataclass(frozen=True)
class Compared:
    """An algorithm under hts against sync on one task, with the same seeds."""

    task: str
    optimizer_steps: int
    """In an update."""
    is_lower: bool
    """Whether hts is lower by a 95 % interval over the seeds, at the end or over the run."""
    record: str
    """Under benchmarks/."""


COMPARED = {
    "ppo": (
        Compared("HalfCheetah", 80, True, "lag-halfcheetah-ppo"),
        Compared("CartPole", 160, False, "learning-cartpole-ppo"),
        Compared("Pendulum", 320, True, "learning-pendulum-ppo"),
    )
}
"""By algorithm, those with a record; a test holds each against it."""


def optimizer_steps(experiment: Experiment) -> int:
    """In an update."""
    epochs: int = getattr(experiment.algorithm, "epochs", 1)
    return epochs * experiment.per_replica.num_minibatches


def lag_price(experiment: Experiment, costs: StepCosts, cores: int) -> list[str]:
    """Lines about what the lag may cost, none where there is no lag or nothing is known."""
    compared, steps = COMPARED.get(algorithm_name(experiment.algorithm), ()), optimizer_steps(experiment)
    lower, others = ([one for one in compared if one.is_lower == is_lower] for is_lower in (True, False))
    if not lower or not experiment.overlaps_learning or steps < min(one.optimizer_steps for one in lower):
        return []
    sync = best(replace(experiment, schedule="sync", lag=None), costs, cores)[0].steps_per_second
    return [
        f"lag         {steps} optimizer steps an update; hts was lower than sync, per step, on {_named(lower)},",
        f"            no difference was shown on {_named(others)}; without a lag, --schedule sync: {sync:,.0f} steps/s",
    ]


def _named(compared: Sequence[Compared]) -> str:
    return ", ".join(f"{one.task} ({one.optimizer_steps})" for one in compared)
