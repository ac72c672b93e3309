"""The module that is exported: named tensors in, the environment's action and all that led to it out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from htsrl.dataflow.trajectory import RECURRENT_STATE
from htsrl.export.signature import NEXT_STATE, ActionPart, Signature
from htsrl.policies.distributions import Choices, masked
from htsrl.policies.policy import Policy
from htsrl.spaces.observations import MASK_KEY


class Graph(nn.Module):
    """A policy that takes and returns what a signature says."""

    def __init__(self, policy: Policy, signature: Signature) -> None:
        super().__init__()
        self.policy = policy
        self._names = {field: port.name for field, port in signature.inputs.items()}
        actions = policy.interface.actions
        num_outputs = policy.action_head.out_features - sum(actions.categories)
        self._widths = [sum(actions.categories), num_outputs, 1, signature.state_size]
        squashed = torch.from_numpy(actions.squashed)
        self._part_names = [part.port.name for part in signature.parts]
        self._is_choice = [part.is_choice for part in signature.parts]
        self.parts = nn.ModuleList(
            _Choice(part) if part.is_choice else _Continuous(part, squashed[part.columns]) for part in signature.parts
        )

    def forward(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        observations = {field: inputs[name] for field, name in self._names.items()}
        outputs = self.policy.outputs(observations)
        logits, continuous, value, state = torch.split(outputs, self._widths, dim=1)
        logits = masked(logits, observations.get(MASK_KEY))
        num_values, num_continuous, _, _ = self._widths
        mean, log_std = self.policy.means_and_log_stds(continuous) if num_continuous else (continuous, continuous)
        sources = (logits if is_choice else mean for is_choice in self._is_choice)
        made = {name: part(source) for name, part, source in zip(self._part_names, self.parts, sources, strict=True)}
        if num_values:
            made["logits"] = logits
        if num_continuous:
            made["mean"] = mean
            made["log_std"] = log_std.expand_as(mean)
        made["value"] = value.squeeze(1)
        if RECURRENT_STATE in self._names:
            made[NEXT_STATE] = state
        return made


class _Choice(nn.Module):
    """The most likely values, in the environment's numbers."""

    starts: Tensor

    def __init__(self, part: ActionPart) -> None:
        super().__init__()
        self._columns, self._categories = part.columns, part.categories
        self._shape, self._dtype = part.port.shape, getattr(torch, part.port.dtype)
        self.register_buffer("starts", torch.tensor(part.starts))

    def forward(self, logits: Tensor) -> Tensor:
        chosen = Choices(logits[:, self._columns], self._categories).mode() + self.starts
        return chosen.reshape(chosen.shape[0], *self._shape).to(self._dtype)


class _Continuous(nn.Module):
    """The means, squashed or clipped into their bounds."""

    low: Tensor
    high: Tensor
    squashed: Tensor
    floor: Tensor
    half_ranges: Tensor

    def __init__(self, part: ActionPart, squashed: Tensor) -> None:
        super().__init__()
        assert isinstance(part.space, spaces.Box)
        self._columns, self._shape, self._dtype = part.columns, part.port.shape, getattr(torch, part.port.dtype)
        self._squashes = bool(squashed.any())
        # Doubles only where the environment has them: not every runtime does.
        working = torch.float64 if self._dtype == torch.float64 else torch.float32
        low, high = (torch.from_numpy(np.ravel(bound)).to(working) for bound in (part.space.low, part.space.high))
        self.register_buffer("low", low)
        self.register_buffer("high", high)
        self.register_buffer("squashed", squashed)
        # Bounds that are not finite would make nan of dimensions that are not squashed.
        self.register_buffer("floor", torch.where(squashed, low, 0.0))
        self.register_buffer("half_ranges", torch.where(squashed, high / 2 - low / 2, 0.0))

    def forward(self, mean: Tensor) -> Tensor:
        actions = mean[:, self._columns].to(self.low.dtype)
        if self._squashes:
            actions = torch.where(self.squashed, self.floor + (actions.tanh() + 1) * self.half_ranges, actions)
        actions = torch.minimum(torch.maximum(actions, self.low), self.high)
        return actions.reshape(actions.shape[0], *self._shape).to(self._dtype)
