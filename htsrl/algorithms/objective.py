"""What an update minimises: a mean over steps, and so over the shards of its sequences, each by its number of steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol

from torch import Tensor

from htsrl.algorithms.batch import Batch, flat_steps
from htsrl.algorithms.sequences import Chosen, Rows, Sequences, taken
from htsrl.algorithms.statistics import normalized
from htsrl.policies.distributions import Distribution
from htsrl.policies.policy import Policy


class Targets(NamedTuple):
    """What gradients aim at, an entry for each of the flattened steps."""

    advantages: Tensor
    returns: Tensor
    log_probs: Tensor
    """Of decoupled PPO: those that the first epoch found when it came to the step."""
    values: Tensor
    """Of the same."""


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


class Seen(NamedTuple):
    """What a policy makes of the learned steps among some sequences."""

    rows: Rows
    actions: Tensor
    distribution: Distribution
    values: Tensor


class BatchView(ABC):
    """A batch as sequences, and its targets, which every loss looks at anew."""

    epoch = 0

    def __init__(self, batch: Batch, targets: Targets, sequence_steps: int) -> None:
        self.targets = targets
        self.sequences = Sequences(batch, sequence_steps)
        self._observations = {name: flat_steps(x) for name, x in batch.observations.items()}
        self._actions = flat_steps(batch.actions)

    @abstractmethod
    def loss(self, seen: Seen) -> tuple[Tensor, ...]: ...

    def __call__(self, policy: Policy, chosen: Chosen) -> tuple[Tensor, ...]:
        piece = self.sequences.choose(chosen)
        observations = {name: taken(x, piece.rows) for name, x in self._observations.items()}
        distribution, values = policy(observations, piece.past)
        return self.loss(Seen(piece.learned, taken(self._actions, piece.learned), distribution, values))

    def learned_rows(self, chosen: Chosen) -> Rows:
        return self.sequences.choose(chosen).learned

    def normalize_advantages(self, chosen: Chosen, advantages: Tensor) -> None:
        """Set the targets of these sequences by mean and deviation over all of them, whoever takes which shard."""
        rows = self.learned_rows(chosen)
        self.targets.advantages[rows] = normalized(advantages[rows])
