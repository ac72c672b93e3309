"""V-trace (https://arxiv.org/abs/1802.01561): returns and advantages from steps that another policy took.

With a trace decay of 1 both are the paper's. Below 1 an advantage looks no further ahead than the return does, so that
with ratios of 1 they are those of GAE.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from htsrl.algorithms.returns import Transitions

RHO_CLIP = 1.0
C_CLIP = 1.0


@dataclass(frozen=True)
class VTrace:
    """What to learn, `[T, B]`."""

    returns_TB: Tensor
    """Where the values should go."""
    advantages_TB: Tensor
    """Of the actions; the policy's gradient weighs them with the truncated ratio."""


def vtrace(steps: Transitions, log_ratios_TB: Tensor, discount: float, trace_decay: float, unroll_steps: int) -> VTrace:
    """`steps` hold the values of the policy that learns, and `log_ratios_TB` its log-probabilities minus those of the
    policy that acted. Sums are cut every `unroll_steps`."""
    ratios_TB = log_ratios_TB.exp()
    rhos_TB, cs_TB = ratios_TB.clamp(max=RHO_CLIP), trace_decay * ratios_TB.clamp(max=C_CLIP)
    has_future_TB = (~steps.terminated_TB).float()
    continues_TB = (~(steps.terminated_TB | steps.truncated_TB)).float()
    continues_TB[unroll_steps - 1 :: unroll_steps] = 0.0
    errors_TB = steps.rewards_TB + discount * has_future_TB * steps.next_values_TB - steps.values_TB
    corrections_TB = torch.empty_like(errors_TB)
    following_TB = torch.empty_like(errors_TB)  # how far the next step's return is from its value
    running_B = torch.zeros_like(errors_TB[0])
    for t in reversed(range(len(errors_TB))):
        following_TB[t] = continues_TB[t] * running_B
        running_B = rhos_TB[t] * errors_TB[t] + discount * cs_TB[t] * following_TB[t]
        corrections_TB[t] = running_B
    return VTrace(steps.values_TB + corrections_TB, errors_TB + discount * trace_decay * following_TB)
