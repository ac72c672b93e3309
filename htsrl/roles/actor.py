"""The actor: takes whatever observations are ready, runs the policy, writes the answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from htsrl.dataflow.exchange import Words
from htsrl.dataflow.parameters import ParameterRing
from htsrl.dataflow.reference_shape import ReferenceShape
from htsrl.dataflow.shared import Shared
from htsrl.dataflow.trajectory import MEMORY
from htsrl.kill_points import reach
from htsrl.policies.policy import Policy
from htsrl.roles.role import NotifyFor
from htsrl.schedules.schedule import storage_of


class Actor:
    """Serves a fixed set of environments; holds no state, so any actor would give the same answers."""

    def __init__(
        self,
        envs: Sequence[int],
        shared: Shared,
        parameters: ParameterRing,
        shape: ReferenceShape,
        notify_executors: NotifyFor,
    ) -> None:
        self._envs = np.array(envs, dtype=np.int64)
        self._storages = storages = shared.storages
        self._exchange = shared.exchange
        self._schedule = shared.schedule
        self._parameters = parameters
        self._shape = shape
        self._notify_executors = notify_executors
        self._device = parameters.slots.device
        self._num_agents = storages.spec.num_agents
        self._num_columns = storages.spec.num_columns
        self._rows_per_storage = storages.spec.num_steps + 1
        self._input_steps = {name: torch.from_numpy(array).flatten(0, 2) for name, array in storages.inputs.items()}
        self._noise_steps = torch.from_numpy(storages["noise"]).flatten(0, 2)

    def advance(self) -> bool:
        envs, tickets = self._ready()
        if not len(envs):
            return False
        rollouts, rows = self._exchange.tickets.rollout_and_row(tickets)
        to_act, greets = self._exchange.tickets.asks_to_act(tickets), self._exchange.tickets.greets(tickets)
        for rollout in sorted(set(rollouts[~greets].tolist())):
            chosen = (rollouts == rollout) & ~greets
            self._answer(rollout, self._columns(envs[chosen]), *self._per_agent(rows[chosen], to_act[chosen]))
        reach("before an answer")
        self._exchange.answers[envs] = tickets
        reach("after an answer")
        self._notify_executors(envs.tolist())
        return True

    def waits_for(self) -> str:
        return f"observations of environments {self._envs.tolist()}"

    def _ready(self) -> tuple[Words, Words]:
        """The environments to answer now, and their tickets."""
        envs = self._exchange.pending(self._envs)
        tickets = self._exchange.requests[envs]
        if self._schedule.step_barrier:
            # The value of a final observation is part of a step, so it does not wait for the others.
            asks, greets = self._exchange.tickets.asks_to_act(tickets), self._exchange.tickets.greets(tickets)
            ready = ~asks | greets | self._exchange.reached_by_all(tickets)
            return envs[ready], tickets[ready]
        return envs, tickets

    def _columns(self, envs: Words) -> Words:
        """The columns of all agents of these environments."""
        if self._num_agents == 1:
            return envs
        columns: Words = (envs[:, None] * self._num_agents + np.arange(self._num_agents)).reshape(-1)
        return columns

    def _per_agent(self, *by_env: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        return by_env if self._num_agents == 1 else tuple(x.repeat(self._num_agents) for x in by_env)

    @torch.inference_mode()
    def _answer(self, rollout: int, columns: Words, rows: Words, to_act: NDArray[np.bool_]) -> None:
        """Decide for agents that are in one rollout, and so act with one version."""
        version = self._schedule.acting_version(rollout)
        policy = self._parameters.module(version)
        assert isinstance(policy, Policy)
        storage = storage_of(rollout)
        batch_rows, batch_columns, places = self._shape.lay_out(rows, columns)
        index = torch.from_numpy((storage * self._rows_per_storage + batch_rows) * self._num_columns + batch_columns)
        inputs = {name: steps[index].to(self._device) for name, steps in self._input_steps.items()}
        decision = policy.decide(inputs, self._noise_steps[index].to(self._device))
        actions, log_probs, values = (answer.cpu().numpy()[places] for answer in decision[:3])
        fields, acting = self._storages, (storage, rows[to_act], columns[to_act])
        fields["actions"][acting] = actions[to_act]
        reach("inside an answer")
        fields["log_probs"][acting] = log_probs[to_act]
        fields["values"][acting] = values[to_act]
        fields["versions"][acting] = version
        if decision.states is not None:
            self._remember(decision.states.cpu().numpy()[places][to_act], *acting)
        if not to_act.all():
            fields["bootstrap_values"][storage, rows[~to_act] - 1, columns[~to_act]] = values[~to_act]

    def _remember(self, states: NDArray[Any], storage: int, rows: Words, columns: Words) -> None:
        """Keep the memory for the rows that follow; an agent that is not active remembers nothing."""
        if "active" in self._storages.fields:
            states = np.where(self._storages["active"][storage, rows, columns, None], states, np.float32(0))
        self._storages[MEMORY][storage, rows + 1, columns] = states
