"""The settings of PPO."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from htsrl.algorithms.ppo.presets import PRESETS
from htsrl.algorithms.shared_settings import ACTOR_CRITIC_METRICS
from htsrl.config.preset import Preset
from htsrl.config.rules import ABOVE_0, AT_LEAST_1, Rule

SETTINGS_BEFORE_LAG_CORRECTION = 19
"""A run's folder has all that there were. One without that choice was begun when PPO corrected nothing; one with it and
without `first_epoch_clip_factor`, when what is now `recentered` was called `decoupled`."""


@dataclass(frozen=True)
class PPO:
    """Proximal policy optimisation: several epochs over the batch, the ratio to the policy before them clipped."""

    name: ClassVar[str] = "ppo"
    algorithm: ClassVar[str] = "htsrl.algorithms.ppo.algorithm:PPOAlgorithm"
    metrics: ClassVar[Mapping[str, str]] = {
        **ACTOR_CRITIC_METRICS,
        "train/loss": "The whole loss, on average over minibatches.",
        "train/policy_gradient_loss": "The clipped surrogate loss.",
        "train/approx_kl": "Approximate KL divergence from the policy that the ratio is clipped around.",
        "train/clip_fraction": "Share of steps whose ratio was outside the clip range.",
        "train/clip_range": "The clip range of the update.",
    }
    presets: ClassVar[Mapping[str, Preset]] = PRESETS
    rules: ClassVar[Mapping[str, Rule]] = {
        "epochs": AT_LEAST_1,
        "clip_range": ABOVE_0,
        "first_epoch_clip_factor": AT_LEAST_1,
        "max_importance_weight": AT_LEAST_1,
        "target_kl": ABOVE_0,
        "value_clip_range": ABOVE_0,
    }
    main_settings: ClassVar[Collection[str]] = (
        *("learning_rate", "discount", "entropy_coefficient", "epochs", "num_minibatches", "clip_range"),
    )
    default_sync_interval: ClassVar[int] = 128

    learning_rate: float = 3e-4
    """Step size of the optimizer."""
    anneal_learning_rate: bool = True
    """Lower the learning rate linearly to zero over the run."""
    optimizer: Literal["rmsprop", "adam"] = "adam"
    """Update rule."""
    rmsprop_decay: float = 0.99
    """Decay of RMSprop's running mean of squares."""
    optimizer_epsilon: float = 1e-5
    """Added to the denominator of the update rule."""
    discount: float = 0.99
    """Gamma: what a reward one step later is worth."""
    gae_lambda: float = 0.95
    """Trace decay of the generalised advantage estimate."""
    unroll_length: int | None = None
    """Advantages are cut and bootstrapped every so many steps. Divides the sync interval. None: the whole interval."""
    epochs: int = 10
    """Passes over the batch per update."""
    num_minibatches: int | None = None
    """Pieces the batch is shuffled into, each one optimizer step; they divide it, and the sequences of a
    recurrent policy. None: 16, or the nearest number that does."""
    clip_range: float = 0.2
    """The probability ratio counts only within 1 +- this. Under hts and async lag_correction says to which policy; by
    default the first epoch's is to the version that acted, and first_epoch_clip_factor times as much counts."""
    anneal_clip_range: bool = False
    """Lower the clip range linearly to zero over the run."""
    value_clip_range: float | None = None
    """Move the value estimate at most this far from that of the policy that the ratio is to; in the first epoch as much
    further as clip_range. None: do not clip."""
    target_kl: float | None = None
    """End an update early when the approximate KL divergence from the policy that the ratio is clipped around exceeds
    1.5 times this; with lag_correction recentered not in the first epoch."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus."""
    value_coefficient: float = 0.5
    """Weight of the value loss."""
    max_gradient_norm: float = 0.5
    """Gradients longer than this are scaled down to it."""
    normalize_advantages: bool = True
    """Give advantages mean 0 and deviation 1."""
    advantage_normalization: Literal["minibatch", "batch"] = "minibatch"
    """Over what: each minibatch by itself, or once over the whole batch, before the epochs."""
    normalize_rewards: bool = False
    """Divide rewards by the running deviation of the discounted return, which is updated at barriers."""
    lag_correction: Literal["auto", "recentered", "decoupled", "delayed_update", "none"] = "auto"
    """What makes up for data of older versions, under hts and async. recentered, and auto: the first epoch is clipped
    around the version that acted, wider; later ones around what the first has found, with importance weights.
    decoupled: all epochs around the version that the update starts from, with importance weights. delayed_update: a
    plain update of the version that acted, whose displacement is applied to the newest; not under async. none: all
    epochs around the version that acted."""
    first_epoch_clip_factor: float = 2.0
    """With lag_correction recentered: how much wider clips are in the first epoch. With epochs=1 there is no other."""
    max_importance_weight: float = 2.0
    """With lag_correction recentered or decoupled: importance weights of steps are truncated at this."""

    @staticmethod
    def of_older_file(settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a file says, with what it meant where it was written before there was a choice."""
        if len(settings) < SETTINGS_BEFORE_LAG_CORRECTION:
            return settings
        if "lag_correction" not in settings:
            return {**settings, "lag_correction": "none"}
        if settings["lag_correction"] == "decoupled" and "first_epoch_clip_factor" not in settings:
            return {**settings, "lag_correction": "recentered"}
        return settings
