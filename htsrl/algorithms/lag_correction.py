"""What an update makes of data that an older version made.

Of A2C: the delayed gradient needs none of this, for it differentiates at the version that made the data. All others
differentiate at the current parameters, and so see ratios other than 1 between the two policies.

Of PPO: the clip says how far one update may go, and around the version that acted it would also count how far the
update before has gone. So the clip gets another centre, or the whole update starts at the version that acted.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from htsrl.algorithms.a2c import A2C
from htsrl.algorithms.batch import Batch, flat_steps
from htsrl.algorithms.ppo import PPO
from htsrl.algorithms.sequences import Rows
from htsrl.algorithms.vtrace import RHO_CLIP, vtrace
from htsrl.errors import ConfigError

Correction = Literal["delayed_gradient", "importance", "vtrace", "none"]
PPOCorrection = Literal["recentered", "decoupled", "delayed_update", "none"]


def correction_of(settings: A2C, mixes_versions: bool) -> Correction:
    """What the settings ask for; `mixes_versions` is whether several versions made a batch."""
    if settings.lag_correction == "auto":
        return "vtrace" if mixes_versions else "delayed_gradient"
    return settings.lag_correction


def ppo_correction_of(settings: PPO, overlaps_learning: bool) -> PPOCorrection:
    """What the settings ask for; `overlaps_learning` is whether data may be older than the version that learns."""
    if not overlaps_learning:
        return "none"
    return "recentered" if settings.lag_correction == "auto" else settings.lag_correction


def check_ppo_correction(settings: PPO, correction: PPOCorrection, mixes_versions: bool) -> None:
    """ConfigError for a correction that cannot work."""
    if mixes_versions and correction == "delayed_update":
        raise ConfigError(
            "lag_correction=delayed_update needs data of one known version, and under schedule=async each step may "
            "have another; use recentered, decoupled or none"
        )
    clip_range, factor = settings.clip_range, settings.first_epoch_clip_factor
    if correction == "recentered" and clip_range < 1 <= clip_range * factor:
        raise ConfigError(
            f"clip_range={clip_range:g} times first_epoch_clip_factor={factor:g} clips no ratio from below in the "
            f"first epoch, for no ratio is negative; use a clip_range below {1 / factor:g}, a first_epoch_clip_factor "
            f"below {1 / clip_range:g}, or another lag_correction"
        )


class Current(NamedTuple):
    """What the current policy makes of some rows of the flattened batch."""

    rows: Rows
    log_probs: Tensor
    values: Tensor


@torch.no_grad()
def importance(batch: Batch, current: Current) -> Tensor:
    """How much more likely an action has become, at most 1: truncated, for its variance has no bound."""
    return (current.log_probs - flat_steps(batch.log_probs)[current.rows]).exp().clamp(max=RHO_CLIP)


@torch.no_grad()
def vtrace_of(
    batch: Batch, current: Current, values: Tensor, settings: A2C, unroll_steps: int
) -> tuple[Tensor, Tensor]:
    """V-trace's advantages and returns of these rows, which are whole unrolls.

    `values` are the current policy's where an unroll is followed by another step of the batch; of other rows they do
    not matter.
    """
    steps = batch.steps
    values, log_ratios = values.clone(), torch.zeros_like(values)
    values[current.rows] = current.values
    log_ratios[current.rows] = current.log_probs - flat_steps(batch.log_probs)[current.rows]
    steps, log_ratios_TB = steps.valued_by(values.view_as(steps.values_TB)), log_ratios.view_as(steps.values_TB)
    made = vtrace(steps, log_ratios_TB, settings.discount, settings.gae_lambda, unroll_steps)
    return flat_steps(made.advantages_TB)[current.rows], flat_steps(made.returns_TB)[current.rows]
