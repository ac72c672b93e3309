"""`selsync`: selective synchronization (https://arxiv.org/abs/2307.07950).

Parameters are averaged after an update in which, at any replica, the smoothed length G of the gradient changed by more
than a share delta: |G - G_before| / G_before. One flag of one replica decides for all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from htsrl.errors import ConfigError
from htsrl.learners.rule import Decision, Meeting, OptimizerSharing, ReplicaReport, RuleFacts, RuleState


class SelSync:
    """G is a mean over the last `window` updates, each of weight `decay` to the power of its age."""

    @dataclass(frozen=True)
    class Settings:
        delta: float = 0.3
        """Relative change of the smoothed gradient norm above which parameters are averaged."""
        window: int = 25
        """Updates that are smoothed over; until there are so many, parameters are averaged after each."""
        decay: float = 0.99
        """Weight of an update relative to the one after it."""
        optimizer: OptimizerSharing = "local"

    reads_gradients = True

    def __init__(self, settings: Settings, facts: RuleFacts) -> None:
        self._settings = settings
        self._facts = facts

    @property
    def state_size(self) -> int:
        """The gradient norms of the last updates, newest first, of one replica after another."""
        return self._facts.learners * self._settings.window

    def check(self) -> None:
        settings = self._settings
        if settings.delta < 0:
            raise ConfigError(f"sync_args delta={settings.delta:g} must be 0 or more")
        if settings.window < 2:
            raise ConfigError(f"sync_args window={settings.window} must be 2 or more, for changes to show")
        if not 0 < settings.decay <= 1:
            raise ConfigError(f"sync_args decay={settings.decay:g} must be above 0 and at most 1")

    def learning_rate_factor(self, update: int) -> float:
        return 1.0

    def momentum_factor(self, update: int) -> float:
        return 1.0

    def decide(self, update: int, state: RuleState, reports: Sequence[ReplicaReport]) -> Decision:
        before = state.reshape(self._facts.learners, self._settings.window)
        newest = np.array([[report.gradient_norm] for report in reports])
        after = np.concatenate([newest, before[:, :-1]], axis=1)
        is_due = update < self._settings.window or self._facts.is_last(update)
        is_due = is_due or any(self.change(*norms) > self._settings.delta for norms in zip(before, after, strict=True))
        return Decision(Meeting.AVERAGE if is_due else Meeting.NONE, after.reshape(-1))

    def change(self, before: NDArray[np.float64], after: NDArray[np.float64]) -> float:
        """By what share the smoothed norm of one replica changed, from those of its last updates, newest first."""
        was, now = self.smoothed(before), self.smoothed(after)
        if was == 0:
            return math.inf if now else 0.0
        return abs(now - was) / was

    def smoothed(self, norms: NDArray[np.float64]) -> float:
        """Summed one after another: the order of a vector's sum would be NumPy's."""
        weights = [self._settings.decay**age for age in range(len(norms))]
        total: float = sum(weight * norm for weight, norm in zip(weights, norms.tolist(), strict=True))
        return total / sum(weights)
