"""A sync rule of a user's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from htsrl.learners.rule import Decision, Meeting, ReplicaReport, RuleFacts, RuleState


class Growing:
    """Every round is an update longer than the one before."""

    @dataclass(frozen=True)
    class Settings:
        first: int = 1

    state_size = 2
    reads_gradients = False

    def __init__(self, settings: Settings, facts: RuleFacts) -> None:
        self._first = settings.first

    def check(self) -> None:
        pass

    def learning_rate_factor(self, update: int) -> float:
        return 1.0

    def momentum_factor(self, update: int) -> float:
        return 1.0

    def decide(self, update: int, state: RuleState, reports: Sequence[ReplicaReport]) -> Decision:
        done, length = state[0] + 1, state[1] or self._first
        if done < length:
            return Decision(Meeting.NONE, np.array([done, length]))
        return Decision(Meeting.AVERAGE, np.array([0.0, length + 1]))
