"""What one update learns from, as tensors over the storage's own memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from htsrl.algorithms.returns import Transitions, true_next_values
from htsrl.dataflow.trajectory import RECURRENT_STATE


@dataclass(frozen=True)
class Batch:
    """An interval of all environments, `[T, B, ...]`."""

    observations: Mapping[str, Tensor]
    """All that a policy is given of a step, activations included where they were kept."""
    actions: Tensor
    log_probs: Tensor
    steps: Transitions
    active: Tensor | None = None
    """Whether an agent took part in the step, where agents may come and go; nothing is learned from the others."""
    states: Tensor | None = None
    """The recurrent state before each step, where the policy has one."""

    @classmethod
    def from_storage(cls, fields: Mapping[str, NDArray[Any]], names: tuple[str, ...], device: torch.device) -> Batch:
        """With what a policy is given under these `names`; views on the CPU, copies on another device."""
        tensors = {name: torch.from_numpy(array).to(device) for name, array in fields.items()}
        next_values = true_next_values(tensors["values"], tensors["bootstrap_values"], tensors["truncated"])
        return cls(
            observations={name: tensors[name] for name in names},
            actions=tensors["actions"],
            log_probs=tensors["log_probs"],
            steps=Transitions(
                tensors["rewards"], tensors["values"], next_values, tensors["terminated"], tensors["truncated"]
            ),
            active=tensors.get("active"),
            states=tensors.get(RECURRENT_STATE),
        )

    def with_rewards(self, rewards_TB: Tensor) -> Batch:
        return replace(self, steps=replace(self.steps, rewards_TB=rewards_TB))

    def valued_by(self, values: Tensor) -> Batch:
        """The same with values of another version, one for each of the flattened steps."""
        return replace(self, steps=self.steps.valued_by(values.view_as(self.steps.values_TB)))

    def learned_rows(self) -> Tensor | slice:
        """Which rows of the flattened steps to learn from."""
        if self.active is None or self.active.all():
            return slice(None)
        return flat_steps(self.active).nonzero().squeeze(1)

    def episode_begins(self) -> Tensor:
        """`[T, B]`: whether the recurrent state was emptied before a step; of the first the stored one tells."""
        ends_TB = self.steps.terminated_TB | self.steps.truncated_TB
        if self.active is not None:
            ends_TB = ends_TB | ~self.active
        return torch.cat([torch.zeros_like(ends_TB[:1]), ends_TB[:-1]])


def flat_steps(tensor: Tensor) -> Tensor:
    """`[T, B, ...]` as one row per step."""
    return tensor.flatten(0, 1)
