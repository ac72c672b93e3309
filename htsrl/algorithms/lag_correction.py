"""What an update makes of data that an older version made (A2C; PPO's clipped ratio is a correction of its own).

The delayed gradient needs none of this: it differentiates at the version that made the data. All others differentiate
at the current parameters, and so see ratios other than 1 between the two policies.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from htsrl.algorithms.batch import Batch, flat_steps
from htsrl.algorithms.sequences import Rows
from htsrl.algorithms.vtrace import MOST_RHO, vtrace
from htsrl.config import A2C

Correction = Literal["delayed_gradient", "importance", "vtrace", "none"]


def correction_of(settings: A2C, queues: bool) -> Correction:
    """What the settings ask for; `queues` is whether a batch holds data of many versions."""
    if settings.lag_correction == "auto":
        return "vtrace" if queues else "delayed_gradient"
    return settings.lag_correction


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
    """V-trace's advantages and returns of these rows.

    What is bootstrapped from at the end of a rollout, and where a time limit cut an episode, is the value of the
    version that acted: what was seen there is not part of the batch.
    """
    steps = batch.steps
    values, log_ratios = flat_steps(steps.values_TB).clone(), torch.zeros_like(flat_steps(steps.values_TB))
    values[current.rows] = current.values
    log_ratios[current.rows] = current.log_probs - flat_steps(batch.log_probs)[current.rows]
    values_TB, next_values_TB = values.view_as(steps.values_TB), steps.next_values_TB.clone()
    next_values_TB[:-1] = torch.where(steps.truncated_TB[:-1], next_values_TB[:-1], values_TB[1:])
    steps = replace(steps, values_TB=values_TB, next_values_TB=next_values_TB)
    made = vtrace(steps, log_ratios.view_as(values_TB), settings.discount, settings.gae_lambda, unroll_steps)
    return flat_steps(made.advantages_TB)[current.rows], flat_steps(made.returns_TB)[current.rows]
