"""`qsr`: the Quadratic Synchronization Rule (https://arxiv.org/abs/2310.14423).

    H = max(H_base, floor((alpha / eta)^2))

local updates in a round that begins at learning rate eta: the smaller the steps, the longer replicas may go alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from htsrl.errors import ConfigError
from htsrl.learners.rule import Decision, Meeting, OptimizerSharing, ReplicaReport, RuleFacts, RuleState


class Qsr:
    """A round's length is chosen as it begins; the last is as long as the run lets it be."""

    @dataclass(frozen=True)
    class Settings:
        base_updates: int = 4
        """H_base: local updates of a round at least, and in warm-up exactly."""
        alpha: float | None = None
        """The larger, the rarer the rounds. None: sqrt(base_updates) times the highest learning rate so far, with which
        rounds grow as soon as that falls."""
        warmup_updates: int = 0
        """Rounds that begin before this update have base_updates."""
        optimizer: OptimizerSharing = "local"

    state_size = 3
    """The update at which the round began, its length (0: none is under way), the highest learning rate so far."""
    reads_gradients = False

    def __init__(self, settings: Settings, facts: RuleFacts) -> None:
        self._settings = settings
        self._facts = facts

    def check(self) -> None:
        settings = self._settings
        if settings.base_updates < 1:
            raise ConfigError(f"sync_args base_updates={settings.base_updates} must be at least 1")
        if settings.alpha is not None and settings.alpha <= 0:
            raise ConfigError(f"sync_args alpha={settings.alpha:g} must be above 0")
        if settings.warmup_updates < 0:
            raise ConfigError(f"sync_args warmup_updates={settings.warmup_updates} must be 0 or more")

    def learning_rate_factor(self, update: int) -> float:
        return 1.0

    def momentum_factor(self, update: int) -> float:
        return 1.0

    def decide(self, update: int, state: RuleState, reports: Sequence[ReplicaReport]) -> Decision:
        begin, length, highest = state.tolist()
        learning_rate = reports[0].learning_rate
        highest = max(highest, learning_rate)
        if not length:
            begin, length = float(update), float(self.round_length(update, learning_rate, highest))
        is_due = update + 1 - begin >= length or self._facts.is_last(update)
        after = np.array([begin, 0.0 if is_due else length, highest])
        return Decision(Meeting.AVERAGE if is_due else Meeting.NONE, after)

    def round_length(self, update: int, learning_rate: float, highest: float) -> int:
        """H of a round that begins at this update with this learning rate, the highest so far being given."""
        base, left = self._settings.base_updates, self._facts.num_updates - update
        alpha = self._settings.alpha
        if update < self._settings.warmup_updates:
            return min(base, left)
        if learning_rate <= 0:
            return left
        ratio = math.sqrt(base) * (highest / learning_rate) if alpha is None else alpha / learning_rate
        # A ratio whose square is a whole number in exact arithmetic may fall short of it by a rounding.
        return max(1, min(max(math.floor(ratio**2 * (1 + 1e-12)), base), left))
