"""A draft whose gradients are written down instead of being lost in an optimizer."""

from __future__ import annotations

import torch
from torch import Tensor

from htsrl.algorithms.draft import Draft
from htsrl.algorithms.gradient import Gradient
from htsrl.dataflow.parameters import FlatLayout
from htsrl.policies.policy import Policy


class RecordingSgd:
    """Plain descent that writes down every gradient and learning rate it is given."""

    def __init__(self, flat: Tensor, gradient: Tensor) -> None:
        self._flat = flat
        self._gradient = gradient
        self.gradients: list[Tensor] = []
        self.learning_rates: list[float] = []

    def step(self, learning_rate: float) -> None:
        self.gradients.append(self._gradient.clone())
        self.learning_rates.append(learning_rate)
        self._flat.add_(self._gradient, alpha=-learning_rate)


def recorded_draft(policy: Policy) -> tuple[Draft, RecordingSgd]:
    """A draft of `policy`, whose gradients may be taken anywhere."""
    layout = FlatLayout.of(policy)
    flat, gradient = torch.zeros(layout.size), Gradient.in_one_shard(policy)
    for parameter, view in zip(policy.parameters(), layout.views(flat, policy), strict=True):
        view.copy_(parameter.detach())
        parameter.data = view
    optimizer = RecordingSgd(flat, gradient.sum)
    return Draft(policy, optimizer, gradient), optimizer
