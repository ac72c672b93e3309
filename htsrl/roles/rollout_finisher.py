"""What the learner adds to complete rollouts before it learns from them, by the version that acted there.

Nobody else writes to those places until the next version is published, and all that it is made from stays as it is: so
it has the same bits however often it is done. Where rows are laid out as an actor lays them out, they have the bits
that it would have given them.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from htsrl.dataflow.exchange import Words
from htsrl.dataflow.parameters import ParameterRing
from htsrl.dataflow.reference_shape import ReferenceShape
from htsrl.policies.policy import Policy
from htsrl.processes.kill_points import kill_point
from htsrl.roles.shared import Shared


class Finisher(Protocol):
    """Completes rollouts for the learner, by the version that made them."""

    def complete(self, rollout: int) -> None:
        """Add all that collectors left out."""

    def add_activations(self) -> None:
        """Add what a checkpoint left out, to rollouts that a resumed run has not learned from yet."""


class RolloutFinisher:
    """Completes the rollouts of a run each of which one version made."""

    def __init__(self, shared: Shared, parameters: ParameterRing, shape: ReferenceShape) -> None:
        self._storages = shared.storages
        self._exchange = shared.exchange
        self._source = shared.source
        self._parameters = parameters
        self._shape = shape
        self._device = parameters.slots.device

    def complete(self, rollout: int) -> None:
        """Add all that its actors left out."""
        if self._storages.spec.values_deferred:
            self._add_log_probs_and_values(rollout)
        self._add_last_values(rollout)

    @torch.inference_mode()
    def _add_log_probs_and_values(self, rollout: int) -> None:
        """Of all steps at once, which is always the same shape; of lanes a row at a time, which caches can hold."""
        storages, storage = self._storages, self._storages.of_rollout(rollout)
        batch, policy = storages.batch(storage), self._policy_of(rollout)
        num_steps = storages.spec.num_steps
        for steps in [slice(t, t + 1) for t in range(num_steps)] if storages.spec.is_lane else [slice(num_steps)]:
            seen = {name: self._rows(batch[name][steps]) for name in storages.observations}
            distribution, values = policy.forward(seen)
            log_probs = distribution.log_prob(self._rows(batch["actions"][steps]))
            for name, of_rows in (("log_probs", log_probs), ("values", values)):
                batch[name][steps] = of_rows.numpy(force=True).reshape(batch[name][steps].shape)
                kill_point("inside deferred values")

    @torch.inference_mode()
    def _add_last_values(self, rollout: int) -> None:
        """The value of what follows a rollout's last step, where the episode continues."""
        storages, last = self._storages, self._storages.spec.num_steps - 1
        storage = storages.of_rollout(rollout)
        goes_on = ~(storages["terminated"][storage, last] | storages["truncated"][storage, last])
        if "active" in storages.fields:
            goes_on &= storages["active"][storage, last]
        columns: Words = np.arange(storages.spec.num_columns)
        batch, places = self._shape.lay_out(columns, columns)
        _, values, _ = self._policy_of(rollout).respond(self._inputs(storage, last + 1, batch))
        storages["bootstrap_values"][storage, last, goes_on] = values.numpy(force=True)[places][goes_on]
        kill_point("inside a finisher")

    @torch.inference_mode()
    def add_activations(self) -> None:
        """Those of all rollouts not yet learned from: a run that is resumed from a checkpoint has none of them."""
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
        version = self._source.behaviour_version(rollout)
        assert version is not None, f"several versions acted in rollout {rollout}"
        policy = self._parameters.module(version)
        assert isinstance(policy, Policy)
        return policy

    def _rows(self, steps_TB: NDArray[Any]) -> Tensor:
        return torch.from_numpy(steps_TB).to(self._device).flatten(0, 1)

    def _inputs(self, storage: int, row: int, columns: Words) -> dict[str, Tensor]:
        return {name: self._tensor(name, storage, row, columns) for name in self._storages.inputs}

    def _tensor(self, name: str, storage: int, row: int, columns: Words) -> Tensor:
        return torch.from_numpy(self._storages[name][storage, row].take(columns, axis=0)).to(self._device)
