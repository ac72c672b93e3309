"""What the learner adds to complete rollouts before it learns from them, by the version that acted there.

Nobody else writes to those places until the next version is published. A row of all columns is a batch in which the
reference shape gives each of them the bits that an actor would have given it. Done twice, it is the same.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from htsrl.dataflow.parameters import ParameterRing
from htsrl.dataflow.shared import Shared
from htsrl.policies.policy import Policy
from htsrl.schedules.schedule import Schedule


class Completion:
    """Completes the rollouts of a run whose schedule says which version acted when."""

    def __init__(self, shared: Shared, schedule: Schedule, parameters: ParameterRing) -> None:
        self._storages = shared.storages
        self._exchange = shared.exchange
        self._schedule = schedule
        self._parameters = parameters
        self._device = parameters.slots.device

    @torch.inference_mode()
    def add_last_values(self, rollout: int) -> None:
        """The value of what follows a rollout's last step, where the episode goes on."""
        storages, last = self._storages, self._storages.spec.num_steps - 1
        storage = storages.of_rollout(rollout)
        goes_on = ~(storages["terminated"][storage, last] | storages["truncated"][storage, last])
        if storages.spec.is_team:
            goes_on &= storages["active"][storage, last]
        _, values, _ = self._policy_of(rollout).respond(self._inputs(storage, last + 1))
        storages["bootstrap_values"][storage, last, goes_on] = values.numpy(force=True)[goes_on]

    @torch.inference_mode()
    def add_activations(self) -> None:
        """Those of all rollouts not yet learned from: a run that goes on from a checkpoint has none of them."""
        storages, completed = self._storages, self._exchange.completed_rollouts
        if not storages.spec.activation_names:
            return
        for rollout in range(self._exchange.published_version, int(completed.max())):
            policy, storage = self._policy_of(rollout), storages.of_rollout(rollout)
            complete = np.repeat(completed > rollout, storages.spec.num_agents)
            for row in range(storages.spec.num_steps):
                inputs, noise = self._inputs(storage, row), self._tensor("noise", storage, row)
                decision = policy.decide(inputs, noise, keep_activations=True)
                for name, activation in decision.activations.items():
                    storages[name][storage, row, complete] = activation.numpy(force=True)[complete]

    def _policy_of(self, rollout: int) -> Policy:
        policy = self._parameters.module(self._schedule.acting_version(rollout))
        assert isinstance(policy, Policy)
        return policy

    def _inputs(self, storage: int, row: int) -> dict[str, Tensor]:
        return {name: self._tensor(name, storage, row) for name in self._storages.inputs}

    def _tensor(self, name: str, storage: int, row: int) -> Tensor:
        return torch.from_numpy(self._storages[name][storage, row]).to(self._device)
