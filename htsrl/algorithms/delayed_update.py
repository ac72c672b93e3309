"""HTS-RL's one-step delay (https://arxiv.org/abs/2012.09849) for updates of many steps.

    theta[j+1] = theta[j] + (U(theta[j-1]) - theta[j-1]),   U: a whole update on data made by theta[j-1]

The update starts where the data were made, so it is on-policy without any correction; what it has moved the parameters
by is applied to the current ones. The optimizer's state is not delayed: it continues from the update before, so that
with a single gradient per update this is the delayed gradient of A2C.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from htsrl.policies.policy import Policy


@contextmanager
def delayed(policy: Policy, behaviour: Policy) -> Iterator[None]:
    """Meanwhile `policy` is at `behaviour`; afterwards where it was, and moved by what happened meanwhile."""
    current = [parameter.detach().clone() for parameter in policy.parameters()]
    current_scales = [buffer.clone() for buffer in _scales(policy)]
    _copy(behaviour.parameters(), policy.parameters())
    _copy(_scales(behaviour), _scales(policy))  # it saw observations through its own
    yield
    with torch.no_grad():
        for now, end, start in zip(current, policy.parameters(), behaviour.parameters(), strict=True):
            end.copy_(now + (end - start))
    _copy(current_scales, _scales(policy))


def _scales(policy: Policy) -> list[torch.Tensor]:
    return [] if policy.observation_scales is None else list(policy.observation_scales.buffers())


@torch.no_grad()
def _copy(source: Iterable[torch.Tensor], target: Iterable[torch.Tensor]) -> None:
    for one, other in zip(source, target, strict=True):
        other.copy_(one)
