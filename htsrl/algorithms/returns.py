"""Returns and advantages as pure functions over `[T, B]`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Transitions:
    """What returns are made of.

    `next_values_TB` is the value of the observation that truly followed each step, so an episode's end needs two
    facts only: a terminated step has no future, and no sum reaches across the end of an episode.
    """

    rewards_TB: Tensor
    values_TB: Tensor
    next_values_TB: Tensor
    terminated_TB: Tensor
    truncated_TB: Tensor

    def valued_by(self, values_TB: Tensor) -> Transitions:
        """The same with values of another version.

        What followed a rollout's last step, and the step at which a time limit cut an episode, is not among the steps.
        Its value is taken to differ as that of the step itself does: left as it was, it would bear all that the values
        have risen or fallen by, and advantages before it with it.
        """
        next_values_TB = self.next_values_TB + (values_TB - self.values_TB)
        next_values_TB[:-1] = torch.where(self.truncated_TB[:-1], next_values_TB[:-1], values_TB[1:])
        return replace(self, values_TB=values_TB, next_values_TB=next_values_TB)


def true_next_values(values_TB: Tensor, bootstrap_values_TB: Tensor, truncated_TB: Tensor) -> Tensor:
    """The next row's value, but the bootstrap value where the next row is another episode's or does not exist."""
    following_TB = torch.cat([values_TB[1:], bootstrap_values_TB[-1:]])
    return torch.where(truncated_TB, bootstrap_values_TB, following_TB)


def gae(steps: Transitions, discount: float, gae_lambda: float, unroll_steps: int) -> Tensor:
    """Generalised advantage estimates (https://arxiv.org/abs/1506.02438), the sum cut every `unroll_steps`."""
    has_future_TB = (~steps.terminated_TB).float()
    errors_TB = steps.rewards_TB + discount * has_future_TB * steps.next_values_TB - steps.values_TB
    continues_TB = (~(steps.terminated_TB | steps.truncated_TB)).float()
    continues_TB[unroll_steps - 1 :: unroll_steps] = 0.0
    decay_TB = discount * gae_lambda * continues_TB
    running_B = torch.zeros_like(errors_TB[0])
    advantages: list[Tensor] = []  # the last step's first
    for error_B, decay_B in zip(reversed(errors_TB.unbind()), reversed(decay_TB.unbind()), strict=True):
        running_B = error_B + decay_B * running_B
        advantages.append(running_B)
    return torch.stack(advantages[::-1])


def n_step_returns(steps: Transitions, discount: float, unroll_steps: int) -> Tensor:
    """Discounted rewards to the end of the episode or unroll, and from there the value."""
    has_future_TB = (~steps.terminated_TB).float()
    bootstraps_TB = steps.truncated_TB.clone()
    bootstraps_TB[unroll_steps - 1 :: unroll_steps] = True
    returns_TB = torch.empty_like(steps.rewards_TB)
    running_B = torch.zeros_like(steps.rewards_TB[0])
    for t in reversed(range(len(returns_TB))):
        following_B = torch.where(bootstraps_TB[t], steps.next_values_TB[t], running_B)
        running_B = steps.rewards_TB[t] + discount * has_future_TB[t] * following_B
        returns_TB[t] = running_B
    return returns_TB
