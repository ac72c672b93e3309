"""What an algorithm is: settings, targets, an objective, and an update that reads like the paper's box.

The runtime does the rest. It fills batches by the schedule, cuts gradients into shards and shares them out, keeps
versions, optimizer state and digests, and brings all of it back after a kill. An algorithm never sees any of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from htsrl.algorithms.batch import Batch
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.objective import Objective
from htsrl.config import Experiment
from htsrl.config.algorithm_settings import CommonSettings, algorithm_of
from htsrl.config.run_facts import RunFacts
from htsrl.dataflow.trajectory import FINAL_PREFIX, STEP_INFO_PREFIX, Field, final_observations
from htsrl.errors import ConfigError
from htsrl.policies.policy import Policy
from htsrl.spaces import Interface

__all__ = ["Algorithm", "Metrics", "RunFacts", "Update", "build_algorithm"]

Metrics = dict[str, float]


@dataclass(frozen=True)
class Update:
    """Which update it is, and who made its data."""

    number: int
    behaviour: Policy | None = None
    """The version that made the batch; None where several did."""


class Algorithm(Protocol):
    """Built from its settings wherever gradients are taken; all that it needs to remember is in the draft.

    It may also have `models(interface, network)`, a `Model` by name for each that it learns with beside the policy, and
    `fields(interface)`, what it wants stored of every step: `final_observations(interface)`, `step_info(key)`. One that
    learns from a dataset may have `check_dataset(dataset)`, which refuses what it cannot learn from. One that
    learns from other things than steps of environments, such as texts, names its kind of batch as `Batch`.
    """

    Settings: ClassVar[type[Any]]
    """A frozen dataclass: flags, config.json and `--help` follow from it."""
    Targets: ClassVar[Any]
    """A NamedTuple of tensors, a number for each step: what `improve` sets before gradients are taken, and every
    gradient worker reads."""

    def __init__(self, settings: Any, run: RunFacts) -> None: ...

    def check(self) -> None:
        """ConfigError for settings that cannot work in this run."""

    @property
    def differentiates_at_behaviour(self) -> bool:
        """Whether every gradient is taken at the version that acted, so that what its layers gave can be kept."""

    def objective(self, update: Update, batch: Batch, targets: Any) -> Objective:
        """What the update minimises; built by everyone who takes gradients."""

    def improve(self, update: Update, draft: Draft, batch: Batch) -> Metrics:
        """One update: set the targets, take gradients, step; returns what to report."""


def own_fields(algorithm: Algorithm, settings: Any, interface: Interface) -> list[Field]:
    """What the algorithm wants stored of every step beside the usual: what its `fields(interface)` says, if it has it.

    ConfigError for a field that nobody would write.
    """
    declared: list[Field] = list(getattr(algorithm, "fields", lambda _: ())(interface))
    has_final = any(field.name.startswith(FINAL_PREFIX) for field in declared)
    if CommonSettings.of(settings).replay_capacity and not has_final:
        declared += final_observations(interface)  # a replay buffer holds what truly followed
    for field in declared:
        if not field.name.startswith((FINAL_PREFIX, STEP_INFO_PREFIX)):
            raise ConfigError(
                f"the algorithm asks for a field {field.name!r} that nobody writes; use final_observations(interface) "
                "or step_info(KEY)"
            )
    return declared


def batch_kind(algorithm: Algorithm) -> Any:
    """What the algorithm learns from: steps of environments, unless it names a `Batch` of its own with the same
    `from_storage`."""
    return getattr(algorithm, "Batch", Batch)


def build_algorithm(experiment: Experiment) -> Algorithm:
    algorithm: Algorithm = algorithm_of(experiment.algorithm)(experiment.algorithm, RunFacts.of(experiment))
    return algorithm
