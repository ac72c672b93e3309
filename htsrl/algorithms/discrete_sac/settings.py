"""The settings of discrete SAC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from htsrl.algorithms.discrete_sac.presets import PRESETS
from htsrl.config.preset import Preset
from htsrl.config.rules import A_SHARE, Rule


@dataclass(frozen=True)
class DiscreteSAC:
    """Soft actor-critic for a choice among actions: off-policy, from a replay buffer, with a learned temperature."""

    name: ClassVar[str] = "discrete_sac"
    algorithm: ClassVar[str] = "htsrl.algorithms.discrete_sac.algorithm:DiscreteSACAlgorithm"
    metrics: ClassVar[Mapping[str, str]] = {
        "train/critic_loss": "Squared errors of both critics.",
        "train/q_value": "Mean value that the critics give to actions of the minibatches.",
        "train/policy_loss": "The entropy's cost less the value.",
        "train/entropy": "Entropy of the policy.",
        "train/temperature": "Alpha, the weight of the entropy.",
    }
    presets: ClassVar[Mapping[str, Preset]] = PRESETS
    rules: ClassVar[Mapping[str, Rule]] = {"target_entropy_share": A_SHARE}
    default_sync_interval: ClassVar[int] = 8
    optimizer: ClassVar[str] = "adam"
    optimizer_epsilon: ClassVar[float] = 1e-8
    required_network: ClassVar[Mapping[str, Any]] = {"separate_value": False}

    learning_rate: float = 3e-4
    """Step size of the optimizers of policy and critics."""
    temperature_learning_rate: float = 3e-4
    """Step size of the temperature's optimizer."""
    discount: float = 0.99
    """Gamma: what a reward one step later is worth."""
    n_step: int = 1
    """Rewards of so many steps are summed before the target critics take over."""
    minibatch_size: int = 64
    """Transitions that a gradient is taken of."""
    update_to_data: float = 0.25
    """Gradient steps for every step of an environment."""
    replay_capacity: int = 100_000
    """Transitions that the replay buffer holds, rounded down to whole rollouts of all environments."""
    priority_exponent: float = 0.0
    """Alpha of prioritised draws: transitions are drawn in proportion to (their last error)^alpha. 0: uniformly."""
    importance_exponent: float = 0.4
    """Beta of prioritised draws: how far importance weights make up for it; 1 is in full."""
    learning_starts: int = 1000
    """Steps of all environments before the first gradient."""
    follow_rate: float = 0.005
    """Tau: how far target critics move towards the critics after every gradient step."""
    initial_temperature: float = 1.0
    """Alpha, the weight of the entropy, at first."""
    target_entropy_share: float = 0.5
    """What the temperature steers the entropy to, as a share of that of a choice at random."""
