"""What an update makes of data that an older version made.

Of A2C: the delayed gradient needs none of this, for it differentiates at the version that made the data. All others
differentiate at the current parameters, and so see ratios other than 1 between the two policies.

Of PPO: the decoupled objective (https://arxiv.org/abs/2110.00641). The clip says how far one update may go. Around the
version that acted it would also count how far the update before has gone.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from htsrl.algorithms.batch import Batch, flat_steps
from htsrl.algorithms.sequences import Rows
from htsrl.algorithms.vtrace import MOST_RHO, vtrace
from htsrl.config import A2C, PPO

Correction = Literal["delayed_gradient", "importance", "vtrace", "none"]


def correction_of(settings: A2C, queues: bool) -> Correction:
    """What the settings ask for; `queues` is whether a batch holds data of many versions."""
    if settings.lag_correction == "auto":
        return "vtrace" if queues else "delayed_gradient"
    return settings.lag_correction


def is_decoupled(settings: PPO, learns_meanwhile: bool) -> bool:
    """What the settings ask for; `learns_meanwhile` is whether data may be older than the version that learns."""
    return learns_meanwhile and settings.lag_correction != "none"


class Current(NamedTuple):
    """What the current policy makes of some rows of the flattened batch."""

    rows: Rows
    log_probs: Tensor
    values: Tensor


@torch.no_grad()
def importance(batch: Batch, current: Current) -> Tensor:
    """How much more likely an action has become, at most 1: truncated, for its variance has no bound."""
    return (current.log_probs - flat_steps(batch.log_probs)[current.rows]).exp().clamp(max=MOST_RHO)


@torch.no_grad()
def vtrace_of(batch: Batch, current: Current, settings: A2C, unroll_steps: int) -> tuple[Tensor, Tensor]:
    """V-trace's advantages and returns of these rows."""
    steps = batch.steps
    values, log_ratios = flat_steps(steps.values_TB).clone(), torch.zeros_like(flat_steps(steps.values_TB))
    values[current.rows] = current.values
    log_ratios[current.rows] = current.log_probs - flat_steps(batch.log_probs)[current.rows]
    steps, log_ratios_TB = steps.valued_by(values.view_as(steps.values_TB)), log_ratios.view_as(steps.values_TB)
    made = vtrace(steps, log_ratios_TB, settings.discount, settings.gae_lambda, unroll_steps)
    return flat_steps(made.advantages_TB)[current.rows], flat_steps(made.returns_TB)[current.rows]
