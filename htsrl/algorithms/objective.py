"""What an update minimises: a mean over steps, and so over the shards of its sequences, each by its number of steps."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor

from htsrl.algorithms.sequences import Chosen, Rows
from htsrl.algorithms.statistics import normalized
from htsrl.policies.policy import Policy


class Targets(NamedTuple):
    """What the learner makes of a batch before it differentiates, an entry for each of the flattened steps."""

    advantages: Tensor
    returns: Tensor


class Objective(Protocol):
    """A loss of some sequences of a batch."""

    num_parts: int
    """How many numbers a loss is."""

    @property
    def targets(self) -> Targets:
        """Looked at anew by every loss."""

    def learned_rows(self, chosen: Chosen) -> Rows:
        """The steps that the loss of these sequences is about."""

    def __call__(self, policy: Policy, chosen: Chosen) -> tuple[Tensor, ...]:
        """Means over those steps: what to differentiate, then the parts to report."""


def normalize_advantages(objective: Objective, chosen: Chosen, advantages: Tensor) -> None:
    """Set the targets of these sequences by mean and deviation over all of them, whoever takes which shard."""
    rows = objective.learned_rows(chosen)
    objective.targets.advantages[rows] = normalized(advantages[rows])
