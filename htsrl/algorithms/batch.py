"""What one update learns from, as tensors over the storage's own memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from htsrl.algorithms.returns import Transitions, true_next_values
from htsrl.dataflow.trajectory import FINAL_PREFIX, RECURRENT_STATE, STEP_INFO_PREFIX
from htsrl.sources.dataset import DatasetSampler
from htsrl.sources.replay_buffer import ReplayBuffer


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
    final: Mapping[str, Tensor] = field(default_factory=dict)
    """True next observations where the next row cannot show them, if the algorithm asks for them."""
    step_info: Mapping[str, Tensor] = field(default_factory=dict)
    """What the algorithm asks for of every step's `info`, by key."""
    replay_buffer: ReplayBuffer | None = None
    """The newest transitions, this batch among them, for algorithms with a `replay_capacity`."""

    dataset: DatasetSampler | None = None
    """What there is to learn from in a run with a `source`, whose batches are empty."""

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
            final=_beginning_with(FINAL_PREFIX, tensors),
            step_info=_beginning_with(STEP_INFO_PREFIX, tensors),
        )

    def next_observations(self) -> dict[str, Tensor]:
        """`[T, B, ...]`: what truly followed every step, for algorithms that ask for final observations."""
        assert self.final, "the algorithm has to ask for `final_observations` in its `fields`"
        ends_TB = self.steps.terminated_TB | self.steps.truncated_TB
        ends_TB = ends_TB.index_fill(0, torch.tensor([len(ends_TB) - 1], device=ends_TB.device), True)
        following = {}
        for name, final in self.final.items():
            shifted = torch.cat([self.observations[name][1:], final[-1:]])
            following[name] = torch.where(ends_TB.view(*ends_TB.shape, *[1] * (final.dim() - 2)), final, shifted)
        return following

    def with_replay_buffer(self, replay_buffer: ReplayBuffer | None) -> Batch:
        return self if replay_buffer is None else replace(self, replay_buffer=replay_buffer)

    def with_dataset(self, dataset: DatasetSampler | None) -> Batch:
        return self if dataset is None else replace(self, dataset=dataset)

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


def _beginning_with(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): x for name, x in tensors.items() if name.startswith(prefix)}


def flat_steps(tensor: Tensor) -> Tensor:
    """`[T, B, ...]` as one row per step."""
    return tensor.flatten(0, 1)
