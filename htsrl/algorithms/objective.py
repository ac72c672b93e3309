"""What an update minimises: a mean over steps, and so over the shards of its sequences, each by its number of steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from torch import Tensor

from htsrl.algorithms.batch import Batch, flat_steps
from htsrl.algorithms.models import Models
from htsrl.algorithms.sequences import Chosen, Piece, Rows, Sequences, taken
from htsrl.algorithms.statistics import EPSILON, normalized
from htsrl.policies.distributions import Distribution
from htsrl.policies.policy import Policy

TargetsOf = TypeVar("TargetsOf")
"""A NamedTuple of tensors, an entry for each of the flattened steps: what gradients aim at."""


class Objective(Protocol):
    """A loss of some sequences of a batch."""

    num_parts: int
    """How many numbers a loss is."""
    epoch: int
    """Which pass over the batch the next losses belong to, from 0 on."""

    def learned_rows(self, chosen: Chosen) -> Rows:
        """The steps that the loss of these sequences is about."""

    def __call__(self, policy: Policy, chosen: Chosen) -> tuple[Tensor, ...]:
        """Means over those steps: what to differentiate, then the parts to report."""


class ModelsObjective(Protocol):
    """The losses of an algorithm with several models."""

    num_parts: int
    epoch: int

    def learned_rows(self, chosen: Chosen) -> Rows:
        """The steps that the loss of these sequences is about."""

    def loss_of(self, model: str, models: Models, chosen: Chosen) -> tuple[Tensor, ...]:
        """Means over those steps: what to differentiate by the parameters of this model, then the parts to report;
        `num_parts` numbers in all."""


class PolicyOutputs(NamedTuple):
    """What a policy makes of the learned steps among some sequences."""

    rows: Rows
    actions: Tensor
    distribution: Distribution
    values: Tensor


class BatchObjective(ABC, Generic[TargetsOf]):
    """A batch as sequences, and its targets, which every loss looks at anew."""

    num_parts = 1
    epoch = 0

    def __init__(self, batch: Batch, targets: TargetsOf, sequence_steps: int) -> None:
        self.targets = targets
        self.sequences = Sequences(batch, sequence_steps)
        self._observations = {name: flat_steps(x) for name, x in batch.observations.items()}
        self._actions = flat_steps(batch.actions)

    @abstractmethod
    def loss(self, seen: PolicyOutputs) -> tuple[Tensor, ...]:
        """Means over the rows that were seen: what to differentiate, then `num_parts - 1` numbers to report."""

    def __call__(self, policy: Policy, chosen: Chosen) -> tuple[Tensor, ...]:
        return self.loss(self.see(policy, self.sequences.choose(chosen)))

    def see(self, policy: Policy, piece: Piece) -> PolicyOutputs:
        observations = {name: taken(x, piece.rows) for name, x in self._observations.items()}
        distribution, values = policy(observations, piece.past)
        return PolicyOutputs(piece.learned, taken(self._actions, piece.learned), distribution, values)

    @property
    def all_sequences(self) -> slice:
        """For those who take a gradient of the whole batch."""
        return slice(0, len(self.sequences.starts))

    def learned_rows(self, chosen: Chosen) -> Rows:
        return self.sequences.choose(chosen).learned

    def normalize_advantages(self, chosen: Chosen, advantages: Tensor, epsilon: float = EPSILON) -> None:
        """Set the target `advantages` of these by mean and deviation over all of them, whoever takes which shard."""
        rows = self.learned_rows(chosen)
        targets: Any = self.targets
        targets.advantages[rows] = normalized(advantages[rows], epsilon)
