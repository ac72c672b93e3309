"""How long an episode may be, and how much of it is made in one rollout: in turns and tokens, never by a clock."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """How long an episode may be, and how much of it is made in one rollout."""

    max_tokens: int
    """Of all turns and answers together."""
    max_turns: int = 1
    max_turn_tokens: int | None = None
    """Of one turn. None: as many as there is room for."""
    turns_per_rollout: int | None = None
    tokens_per_rollout: int | None = None

    @property
    def max_rollouts(self) -> int:
        """Over how many rollouts an episode can extend: each of them spends a budget, or ends the episode."""
        by_turns = -(-self.max_turns // self.turns_per_rollout) if self.turns_per_rollout else 0
        by_tokens = -(-self.max_tokens // self.tokens_per_rollout) if self.tokens_per_rollout else 0
        return max(by_turns + by_tokens, 1)

    def without_budget(self) -> Limits:
        """For an evaluation, which ends every episode."""
        return Limits(self.max_tokens, self.max_turns, self.max_turn_tokens)
