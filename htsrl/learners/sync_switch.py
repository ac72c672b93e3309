"""`sync_switch`: synchronous at first, then asynchronous (Sync-Switch, https://arxiv.org/abs/2104.08364).

Asynchrony in logical time: in each update the replicas push their changes to common parameters one after another, and
each pulls what it finds there after its own. So what a replica learned was learned exactly R-1 pushes ago, as of
workers that are equally fast, and every run has the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from htsrl.errors import ConfigError
from htsrl.learners.rule import Decision, Meeting, OptimizerSharing, ReplicaReport, RuleFacts, RuleState


class SyncSwitch:
    """Averages after every update of the first share of the run; pushes after every later one."""

    @dataclass(frozen=True)
    class Settings:
        switch_share: float = 0.0625
        """The share of the run's updates that is synchronous, one update at least."""
        learning_rate_factor: float | None = None
        """By which the learning rate is multiplied from the switch on. None: 1 / learners, for changes that were
        averaged add up there."""
        momentum_factor: float = 1.0
        """By which Adam's running mean of gradients is multiplied at the switch; 0 begins it anew."""
        optimizer: OptimizerSharing = "local"

    state_size = 0
    reads_gradients = False

    def __init__(self, settings: Settings, facts: RuleFacts) -> None:
        self._settings = settings
        self._facts = facts
        self.switch_update = max(1, round(settings.switch_share * facts.num_updates))
        """The first that is asynchronous."""

    def check(self) -> None:
        settings = self._settings
        if not 0 <= settings.switch_share <= 1:
            raise ConfigError(f"sync_args switch_share={settings.switch_share:g} must be from 0 to 1")
        if settings.learning_rate_factor is not None and settings.learning_rate_factor <= 0:
            raise ConfigError(f"sync_args learning_rate_factor={settings.learning_rate_factor:g} must be above 0")
        if not 0 <= settings.momentum_factor <= 1:
            raise ConfigError(f"sync_args momentum_factor={settings.momentum_factor:g} must be from 0 to 1")

    def learning_rate_factor(self, update: int) -> float:
        if update < self.switch_update:
            return 1.0
        given = self._settings.learning_rate_factor
        return 1.0 / self._facts.learners if given is None else given

    def momentum_factor(self, update: int) -> float:
        return self._settings.momentum_factor if update == self.switch_update else 1.0

    def decide(self, update: int, state: RuleState, reports: Sequence[ReplicaReport]) -> Decision:
        if update < self.switch_update:
            return Decision(Meeting.AVERAGE, state)
        return Decision(Meeting.COLLECT if self._facts.is_last(update) else Meeting.PUSH, state)
