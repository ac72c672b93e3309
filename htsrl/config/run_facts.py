"""The part of an experiment that algorithms are told."""

from __future__ import annotations

from dataclasses import dataclass, field

from htsrl.config.experiment import Experiment
from htsrl.config.network import Network


@dataclass(frozen=True)
class RunFacts:
    """What an algorithm knows of the run that it learns in."""

    seed: int
    num_updates: int
    unroll_steps: int
    """Returns are cut, and bootstrapped, every so many steps."""
    sequence_steps: int
    """Steps that a recurrent policy must see one after another; 1 without recurrent state."""
    gradient_shards: int
    overlaps_learning: bool
    """Whether data may be older than the version that learns from them."""
    mixes_versions: bool
    """Whether several versions may have made a batch."""
    network: Network = field(default_factory=Network)
    """What the policy is made of; `network.policy` is None unless the user gave one."""

    @classmethod
    def of(cls, experiment: Experiment) -> RunFacts:
        return cls(
            experiment.seed,
            experiment.num_intervals,
            experiment.unroll_steps,
            experiment.sequence_steps,
            experiment.num_shards,
            experiment.overlaps_learning,
            experiment.mixes_versions,
            experiment.network,
        )

    def remaining(self, update: int) -> float:
        """The share of the run that is left, for what is annealed."""
        return 1 - update / self.num_updates
