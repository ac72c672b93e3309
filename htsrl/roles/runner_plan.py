"""What those who run environments do in a run, whichever environments they are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RunnerPlan:
    """How many rollouts, and how."""

    seed: int
    num_rollouts: int
    poisons: bool = False
    """Whether what is not written yet is made unusable, so that nobody reads it unnoticed."""
    excludes: bool = False
    """Whether nothing is learned from an episode in which the environment failed."""
