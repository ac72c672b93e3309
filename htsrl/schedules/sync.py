"""Synchronous training: rollout j waits for version j, so rolling out and learning take turns and the lag is 0."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sync:
    """Textbook A2C and PPO; with `step_barrier` all environments also meet at every step, as the paper's baseline."""

    step_barrier: bool = False

    def acting_version(self, rollout: int) -> int:
        return rollout
