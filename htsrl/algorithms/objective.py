"""What an update minimises: a mean over steps, and so over the shards of its sequences, each by its number of steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from htsrl.algorithms.batch import Batch, flat_steps
from htsrl.algorithms.sequences import Chosen, Rows, Sequences, taken
from htsrl.algorithms.statistics import normalized
from htsrl.kill_points import reach
from htsrl.policies.distributions import Distribution
from htsrl.policies.policy import Policy


class Targets(NamedTuple):
    """What the learner makes of a batch before it differentiates, an entry for each of the flattened steps."""

    advantages: Tensor
    returns: Tensor
    log_probs: Tensor
    """Of PPO: where its ratio is 1."""
    values: Tensor
    """Of PPO: where its clipped values are centred."""


class Objective(Protocol):
    """A loss of some sequences of a batch."""

    num_parts: int
    """How many numbers a loss is."""

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


class BatchObjective(Objective, Protocol):
    """One that also says what a policy makes of the steps, before anything is differentiated."""

    def assess(self, policy: Policy, chosen: Chosen, to_differentiate: bool) -> Seen:
        """Write log-probabilities and values of the steps of these sequences into the targets.

        Of what is returned, a loss can be differentiated if that was said before.
        """

    def loss(self, seen: Seen) -> tuple[Tensor, ...]:
        """What a call gives, of what has already been seen."""


class BatchView(ABC):
    """A batch as sequences, and its targets, which every loss looks at anew."""

    def __init__(self, batch: Batch, targets: Targets, sequence_steps: int) -> None:
        self.targets = targets
        self.sequences = Sequences(batch, sequence_steps)
        self._observations = {name: flat_steps(x) for name, x in batch.observations.items()}
        self._actions = flat_steps(batch.actions)

    @abstractmethod
    def loss(self, seen: Seen) -> tuple[Tensor, ...]: ...

    def __call__(self, policy: Policy, chosen: Chosen) -> tuple[Tensor, ...]:
        return self.loss(self.see(policy, chosen))

    def learned_rows(self, chosen: Chosen) -> Rows:
        return self.sequences.choose(chosen).learned

    def see(self, policy: Policy, chosen: Chosen) -> Seen:
        piece = self.sequences.choose(chosen)
        observations = {name: taken(x, piece.rows) for name, x in self._observations.items()}
        distribution, values = policy(observations, piece.past)
        return Seen(piece.learned, taken(self._actions, piece.learned), distribution, values)

    def assess(self, policy: Policy, chosen: Chosen, to_differentiate: bool) -> Seen:
        with torch.set_grad_enabled(to_differentiate):
            seen = self.see(policy, chosen)
            log_probs = seen.distribution.log_prob(seen.actions)
        self.targets.log_probs[seen.rows] = log_probs.detach()
        reach("inside an assessment")
        self.targets.values[seen.rows] = seen.values.detach()
        return seen

    def normalize_advantages(self, chosen: Chosen, advantages: Tensor) -> None:
        """Set the targets of these sequences by mean and deviation over all of them, whoever takes which shard."""
        rows = self.learned_rows(chosen)
        self.targets.advantages[rows] = normalized(advantages[rows])
