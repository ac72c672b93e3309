"""A sync rule says after each update how the replicas of a run meet, from numbers that all of them know.

A rule is a pure function of the update's number, of its own state (a few numbers, kept with the version) and of what
every replica reports of its update. So whoever computes a decision again, after a kill or a resume, decides the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

RuleState = NDArray[np.float64]
OptimizerSharing = Literal["local", "average"]
"""Of the optimizer's vectors, where parameters are averaged: each replica keeps its own, or they are averaged too."""


class Meeting(IntEnum):
    """What replicas do at the end of an update."""

    NONE = 0
    """Each continues from its own draft."""
    AVERAGE = 1
    """All continue from the mean of the drafts."""
    PUSH = 2
    """One after another, each adds what its update changed to the common parameters, and continues from what it finds
    there: the changes of those before it in this update, and of those behind it in the update before."""
    COLLECT = 3
    """The same, but all continue from the sum of all changes."""


@dataclass(frozen=True)
class RuleFacts:
    """What a rule knows of the run."""

    learners: int
    num_updates: int

    def is_last(self, update: int) -> bool:
        return update + 1 == self.num_updates


class ReplicaReport(NamedTuple):
    """What a replica says of its update; in shared memory, a row of numbers."""

    learning_rate: float
    """The algorithm's, before the rule's factor."""
    gradient_norm: float
    """Mean length of its gradients, before they are clipped."""


class Decision(NamedTuple):
    """How replicas meet, and the rule's state from there on."""

    meeting: Meeting
    state: RuleState


class SyncRule(Protocol):
    """Made as `Rule(settings, facts)`, by everybody who learns.

    Its settings are those of a frozen dataclass `Rule.Settings`, whose fields `--sync-arg` sets; one called `optimizer`
    is an `OptimizerSharing`.
    """

    def check(self) -> None:
        """ConfigError for settings that cannot work."""

    @property
    def state_size(self) -> int:
        """Numbers that it remembers; zeros before the first update."""

    @property
    def reads_gradients(self) -> bool:
        """Whether it looks at what replicas measured, which has to be sent; else at what all know anyway."""

    def learning_rate_factor(self, update: int) -> float:
        """By which the algorithm's learning rate is multiplied in an update."""

    def momentum_factor(self, update: int) -> float:
        """By which the optimizer's running mean of gradients is multiplied as an update begins."""

    def decide(self, update: int, state: RuleState, reports: Sequence[ReplicaReport]) -> Decision:
        """After an update: `reports` are those of all replicas, by their numbers."""
