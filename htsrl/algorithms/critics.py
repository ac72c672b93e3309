"""Two action values for continuous actions, of which SAC and TD3 take the smaller."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from htsrl.config import Network
from htsrl.policies.encoders import Encoder, encoder_for
from htsrl.policies.layers import Dense, Mlp
from htsrl.spaces import Interface


class Critics(nn.Module):
    """Two action values."""

    def __init__(
        self, interface: Interface, network: Network, bounded: Callable[[Tensor], Tensor] = torch.tanh
    ) -> None:
        """`bounded` brings actions as the policy draws them into [-1, 1]."""
        super().__init__()
        self.encoder: Encoder = encoder_for(
            interface.observations, Network(hidden_sizes=(), precision=network.precision)
        )
        width = self.encoder.num_features + interface.actions.num_continuous
        self.hidden = nn.ModuleList(Mlp(width, network.hidden_sizes, network.activation) for _ in range(2))
        self.heads = nn.ModuleList(Dense(cast(Mlp, mlp).num_features, 1) for mlp in self.hidden)
        self._bounded = bounded

    def forward(self, observations: dict[str, Tensor], actions: Tensor) -> Tensor:
        """`[2, rows]`, of actions as the policy draws them."""
        seen = torch.cat([self.encoder.side_by_side(observations), self._bounded(actions)], dim=1)
        return torch.stack([head(mlp(seen)).squeeze(-1) for mlp, head in zip(self.hidden, self.heads, strict=True)])
