"""`fixed`: parameters are averaged after every H local updates, as in Local SGD (https://arxiv.org/abs/1805.09767)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from htsrl.errors import ConfigError
from htsrl.learners.rule import Decision, Meeting, OptimizerSharing, ReplicaReport, RuleFacts, RuleState


class Fixed:
    """Rounds of H updates; the last is as long as the run lets it be."""

    @dataclass(frozen=True)
    class Settings:
        local_updates: int = 4
        """H: updates that each replica makes alone before parameters are averaged."""
        optimizer: OptimizerSharing = "local"

    state_size = 0
    reads_gradients = False

    def __init__(self, settings: Settings, facts: RuleFacts) -> None:
        self._local_updates = settings.local_updates
        self._facts = facts

    def check(self) -> None:
        if self._local_updates < 1:
            raise ConfigError(f"sync_args local_updates={self._local_updates} must be at least 1")

    def learning_rate_factor(self, update: int) -> float:
        return 1.0

    def momentum_factor(self, update: int) -> float:
        return 1.0

    def decide(self, update: int, state: RuleState, reports: Sequence[ReplicaReport]) -> Decision:
        is_due = (update + 1) % self._local_updates == 0 or self._facts.is_last(update)
        return Decision(Meeting.AVERAGE if is_due else Meeting.NONE, state)
