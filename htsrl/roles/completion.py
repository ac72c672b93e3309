"""What the learner adds to complete rollouts before it learns from them, by the version that acted there.

Nobody else writes to those places until the next version is published. Rows are laid out as an actor lays them out,
so they have the bits that it would have given them, however often it is done.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from htsrl.dataflow.exchange import Words
from htsrl.dataflow.parameters import ParameterRing
from htsrl.dataflow.reference_shape import ReferenceShape
from htsrl.dataflow.shared import Shared
from htsrl.kill_points import reach
from htsrl.policies.policy import Policy
from htsrl.schedules.schedule import Schedule


class Completion:
    """Completes the rollouts of a run whose schedule says which version acted when."""

    def __init__(self, shared: Shared, schedule: Schedule, parameters: ParameterRing, shape: ReferenceShape) -> None:
        self._storages = shared.storages
        self._exchange = shared.exchange
        self._schedule = schedule
        self._parameters = parameters
        self._shape = shape
        self._device = parameters.slots.device

    @torch.inference_mode()
    def add_last_values(self, rollout: int) -> None:
        """The value of what follows a rollout's last step, where the episode goes on."""
        storages, last = self._storages, self._storages.spec.num_steps - 1
        storage = storages.of_rollout(rollout)
        goes_on = ~(storages["terminated"][storage, last] | storages["truncated"][storage, last])
        if storages.spec.is_team:
            goes_on &= storages["active"][storage, last]
        columns: Words = np.flatnonzero(goes_on)
        if not len(columns):
            return
        batch, places = self._shape.lay_out(columns, columns)
        _, values, _ = self._policy_of(rollout).respond(self._inputs(storage, last + 1, batch))
        storages["bootstrap_values"][storage, last, columns] = values.numpy(force=True)[places]
        reach("inside a completion")

    @torch.inference_mode()
    def add_activations(self) -> None:
        """Those of all rollouts not yet learned from: a run that goes on from a checkpoint has none of them."""
        storages, completed = self._storages, self._exchange.completed_rollouts
        if not storages.spec.activation_names:
            return
        for rollout in range(self._exchange.published_version, int(completed.max())):
            policy, storage = self._policy_of(rollout), storages.of_rollout(rollout)
            # Of the others, rows may be half written.
            columns: Words = np.flatnonzero(np.repeat(completed > rollout, storages.spec.num_agents))
            batch, places = self._shape.lay_out(columns, columns)
            for row in range(storages.spec.num_steps):
                inputs, noise = self._inputs(storage, row, batch), self._tensor("noise", storage, row, batch)
                decision = policy.decide(inputs, noise, keep_activations=True)
                for name, activation in decision.activations.items():
                    storages[name][storage, row, columns] = activation.numpy(force=True)[places]

    def _policy_of(self, rollout: int) -> Policy:
        policy = self._parameters.module(self._schedule.acting_version(rollout))
        assert isinstance(policy, Policy)
        return policy

    def _inputs(self, storage: int, row: int, columns: Words) -> dict[str, Tensor]:
        return {name: self._tensor(name, storage, row, columns) for name in self._storages.inputs}

    def _tensor(self, name: str, storage: int, row: int, columns: Words) -> Tensor:
        return torch.from_numpy(self._storages[name][storage, row].take(columns, axis=0)).to(self._device)
