"""The settings of A2C."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from htsrl.algorithms.a2c.presets import PRESETS
from htsrl.algorithms.shared_settings import ACTOR_CRITIC_METRICS
from htsrl.config.preset import Preset


@dataclass(frozen=True)
class A2C:
    """Advantage actor-critic; under the `hts` schedule with the paper's one-step delayed gradient."""

    name: ClassVar[str] = "a2c"
    algorithm: ClassVar[str] = "htsrl.algorithms.a2c.algorithm:A2CAlgorithm"
    metrics: ClassVar[Mapping[str, str]] = {
        **ACTOR_CRITIC_METRICS,
        "train/policy_loss": "Policy gradient loss.",
    }
    presets: ClassVar[Mapping[str, Preset]] = PRESETS
    main_settings: ClassVar[Collection[str]] = ("learning_rate", "discount", "entropy_coefficient")
    default_sync_interval: ClassVar[int] = 5

    learning_rate: float = 7e-4
    """Step size of the optimizer."""
    anneal_learning_rate: bool = True
    """Lower the learning rate linearly to zero over the run."""
    optimizer: Literal["rmsprop", "adam"] = "rmsprop"
    """Update rule."""
    rmsprop_decay: float = 0.99
    """Decay of RMSprop's running mean of squares."""
    optimizer_epsilon: float = 1e-5
    """Added to the denominator of the update rule."""
    discount: float = 0.99
    """Gamma: what a reward one step later is worth."""
    gae_lambda: float = 1.0
    """Trace decay of the advantage; 1 gives n-step returns."""
    unroll_length: int | None = None
    """Steps per gradient; returns bootstrap at its end. Divides the sync interval. None: the whole interval."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus."""
    value_coefficient: float = 0.5
    """Weight of the value loss."""
    max_gradient_norm: float = 0.5
    """Gradients longer than this are scaled down to it."""
    normalize_advantages: bool = False
    """Give the advantages of a gradient mean 0 and deviation 1."""
    normalize_rewards: bool = False
    """Divide rewards by the running deviation of the discounted return, which is updated at barriers."""
    lag_correction: Literal["auto", "delayed_gradient", "importance", "vtrace", "none"] = "auto"
    """What makes up for data of older versions. delayed_gradient: differentiate where they were made. importance and
    vtrace: differentiate at the current parameters, with truncated importance weights, vtrace with its own returns.
    none: as if they were new. auto: vtrace under async, else delayed_gradient."""
