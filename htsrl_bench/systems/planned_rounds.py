"""Controls for rules whose rounds follow from what they see: as many rounds, after updates that nothing was seen of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from htsrl.learners.rule import Decision, Meeting, ReplicaReport, RuleFacts, RuleState


class PlannedRounds:
    """So many rounds, the last of them after the last update."""

    @dataclass(frozen=True)
    class Settings:
        rounds: int = 1
        seed: int | None = None
        """Of the draw of the other updates. None: at distances that differ by one at most."""

    state_size = 0
    reads_gradients = False

    def __init__(self, settings: Settings, facts: RuleFacts) -> None:
        rounds, num_updates = settings.rounds, facts.num_updates
        if settings.seed is None:
            before_last = [(number * num_updates) // rounds - 1 for number in range(1, rounds)]
        else:
            before_last = np.random.default_rng([settings.seed, 3]).permutation(num_updates - 1)[: rounds - 1].tolist()
        self._updates = {*before_last, num_updates - 1}

    def check(self) -> None:
        pass

    def learning_rate_factor(self, update: int) -> float:
        return 1.0

    def momentum_factor(self, update: int) -> float:
        return 1.0

    def decide(self, update: int, state: RuleState, reports: Sequence[ReplicaReport]) -> Decision:
        return Decision(Meeting.AVERAGE if update in self._updates else Meeting.NONE, state)


PLANNED = f"{PlannedRounds.__module__}:{PlannedRounds.__name__}"
"""As a configuration names it."""


def controls_of(way: str, rounds: int, seed: int) -> Mapping[str, PlannedRounds.Settings]:
    """By the name that each has beside the rule that came to so many rounds."""
    return {
        f"{way}: as many at equal distances": PlannedRounds.Settings(rounds),
        f"{way}: as many drawn": PlannedRounds.Settings(rounds, seed),
    }
