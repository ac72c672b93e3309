"""HTS-RL: rollout j runs with version j-1 while the learner works on rollout j-1.

The pipeline fills with rollouts 0 and 1, both made by version 0, for nothing can be learned before rollout 0 is
complete. So update 0 has lag 0, and every later one exactly 1.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Hts:
    """Learning and rolling out overlap; the data are one version behind."""

    step_barrier: bool = False

    def acting_version(self, rollout: int) -> int:
        return max(rollout - 1, 0)
