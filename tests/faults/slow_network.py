"""A network that takes its time whenever somebody learns."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn

SLOW_SECONDS = 0.35


class SlowToLearn(nn.Module):
    """Acts at once; every gradient that is taken of it takes a while."""

    def __init__(self, space: Any) -> None:
        super().__init__()
        self.num_features = 4
        self.layer = nn.Linear(space.shape[0], self.num_features)

    def forward(self, observations: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            time.sleep(SLOW_SECONDS)
        features: Tensor = self.layer(observations)
        return features
