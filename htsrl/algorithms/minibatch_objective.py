"""Losses of minibatches that are drawn, from a replay buffer or a dataset, and not cut from the batch.

Which transitions a gradient step draws is a function of (seed, update, gradient step), so everybody who takes a share
of its gradient draws the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from htsrl.algorithms.models import Models
from htsrl.algorithms.sequences import Chosen, Rows
from htsrl.config.run_facts import RunFacts
from htsrl.errors import ConfigError
from htsrl.policies.policy import Policy
from htsrl.seeding import ActionNoise
from htsrl.sources.replay_buffer import Sampled

if TYPE_CHECKING:
    from htsrl.algorithms.draft import Draft


class MinibatchSettings(Protocol):
    """The settings that all of them have."""

    @property
    def minibatch_size(self) -> int: ...


class NoTargets(NamedTuple):
    """Nothing: whoever takes a share of a gradient draws its minibatch."""


Settings = TypeVar("Settings", bound=MinibatchSettings)
Minibatch = TypeVar("Minibatch", bound=tuple[Any, ...])
"""A NamedTuple of what a gradient step learns from, a row for each transition."""


class MinibatchObjective(ABC, Generic[Settings, Minibatch]):
    """The losses of an update; `epoch` is the gradient step within it. That of a model is the method `_MODEL_loss`."""

    num_parts = 3
    epoch = 0

    def __init__(self, settings: Settings, seed: int, update: int) -> None:
        self._settings = settings
        self._seed = seed
        self._update = update
        self._drawn: tuple[int, Minibatch] | None = None
        self._parts: dict[tuple[int, int], Minibatch] = {}

    @abstractmethod
    def _draw(self, noise: ActionNoise, device: torch.device) -> Minibatch:
        """The minibatch of the gradient step."""

    @property
    def everything(self) -> slice:
        return slice(0, self._settings.minibatch_size)

    def learned_rows(self, chosen: Chosen) -> Rows:
        return chosen

    def loss_of(self, model: str, models: Models, chosen: Chosen) -> tuple[Tensor, ...]:
        """Of some rows of the gradient step's minibatch, and what to report of them."""
        loss: Callable[[Models, Minibatch], tuple[Tensor, ...]] = getattr(self, f"_{model}_loss")
        return loss(models, self._rows(models.policy, chosen))

    def minimise(self, model: str, draft: Draft, learning_rate: float) -> Tensor:
        """Move a model by the gradient of its loss of the minibatch; returns what that reports."""
        parts = draft.differentiate(self, draft.models, self.everything, of=model)
        draft.step(learning_rate)
        return parts

    def _minibatch(self, policy: Policy) -> Minibatch:
        """Drawn once for all models of a gradient step."""
        if self._drawn is None or self._drawn[0] != self.epoch:
            self._drawn = self.epoch, self._draw(policy.interface.actions.noise, policy.action_head.weight.device)
            self._parts.clear()
        return self._drawn[1]

    def _rows(self, policy: Policy, chosen: Chosen) -> Minibatch:
        """Some rows of it, cut out once for all models of a gradient step."""
        minibatch = self._minibatch(policy)
        if isinstance(chosen, Tensor):
            return chosen_rows(minibatch, chosen)
        place = chosen.start, chosen.stop
        if place not in self._parts:
            self._parts[place] = chosen_rows(minibatch, chosen)
        return self._parts[place]


class SampledTensors(NamedTuple):
    """Transitions on the device, a row each."""

    observations: dict[str, Tensor]
    actions: Tensor
    rewards: Tensor
    next_observations: dict[str, Tensor]
    discounts: Tensor


def tensors_of(found: Sampled, device: torch.device) -> SampledTensors:
    def by_name(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
        return {name: torch.from_numpy(x).to(device) for name, x in arrays.items()}

    actions, rewards, discounts = (
        torch.from_numpy(x).to(device) for x in (found.actions, found.rewards, found.discounts)
    )
    return SampledTensors(by_name(found.observations), actions, rewards, by_name(found.next_observations), discounts)


def chosen_rows(minibatch: Minibatch, chosen: Chosen) -> Minibatch:
    """Some rows of a NamedTuple of tensors, of several of them, of tensors by name and of what is not there."""

    def rows(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: x[chosen] for name, x in part.items()}
        if isinstance(part, tuple):
            return tuple(x[chosen] for x in part)
        return None if part is None else part[chosen]

    return type(minibatch)(*map(rows, minibatch))


def check_shards_of_minibatch(settings: MinibatchSettings, run: RunFacts) -> None:
    """ConfigError where there are more shards than rows."""
    if run.gradient_shards > settings.minibatch_size:
        raise ConfigError(
            f"gradient_shards={run.gradient_shards} is more than minibatch_size={settings.minibatch_size}"
        )
