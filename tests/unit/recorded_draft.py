"""A draft whose gradients are written down instead of being lost in an optimizer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from htsrl.algorithms.draft import Draft
from htsrl.algorithms.gradient import Gradient
from htsrl.dataflow.parameters import FlatLayout
from htsrl.policies.policy import Policy


class RecordingSgd(torch.optim.SGD):
    """Plain descent that writes down every gradient and learning rate it is given."""

    def __init__(self, flat: Tensor) -> None:
        super().__init__([flat], lr=0.0)
        self.flat = flat
        self.gradients: list[Tensor] = []
        self.learning_rates: list[float] = []

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        assert self.flat.grad is not None
        self.gradients.append(self.flat.grad.clone())
        self.learning_rates.append(self.param_groups[0]["lr"])
        super().step()


def recorded_draft(policy: Policy) -> tuple[Draft, RecordingSgd]:
    """A draft of `policy`, whose gradients may be taken anywhere."""
    layout = FlatLayout.of(policy)
    flat = nn.Parameter(torch.zeros(layout.size), requires_grad=False)
    gradient = Gradient.in_one_shard(policy)
    flat.grad = gradient.sum
    for parameter, view in zip(policy.parameters(), layout.views(flat.data, policy), strict=True):
        view.copy_(parameter.detach())
        parameter.data = view
    optimizer = RecordingSgd(flat)
    return Draft(policy, optimizer, gradient), optimizer
