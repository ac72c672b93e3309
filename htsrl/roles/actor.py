"""The actor: takes whatever observations are ready, runs the policy, writes the answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from htsrl.dataflow.exchange import Words
from htsrl.dataflow.parameters import ParameterRing
from htsrl.dataflow.reference_shape import ReferenceShape
from htsrl.dataflow.shared import Shared
from htsrl.dataflow.trajectory import BOOTSTRAP_VERSIONS, MEMORY
from htsrl.kill_points import reach
from htsrl.policies.policy import Decision, Policy
from htsrl.roles.role import NotifyFor
from htsrl.schedules.schedule import Asked, acting_versions, has_step_barrier


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
        self._has_step_barrier = has_step_barrier(shared.schedule)
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
        # After the requests: whatever a version answers was asked for while it was the newest, which replays rely on.
        published = self._exchange.published_version
        versions = acting_versions(self._schedule, Asked(envs, tickets, rollouts), published)
        to_act, greets = self._exchange.tickets.asks_to_act(tickets), self._exchange.tickets.greets(tickets)
        storages = rollouts % self._storages.spec.num_storages
        for version in sorted(set(versions[~greets & (versions <= published)].tolist())):
            chosen = (versions == version) & ~greets
            places = self._per_agent(storages[chosen], rows[chosen], to_act[chosen])
            self._answer(version, self._columns(envs[chosen]), *places)
        reach("before an answer")
        answered = greets | (versions <= published)
        self._exchange.answers[envs[answered]] = tickets[answered]
        reach("after an answer")
        self._notify_executors(envs[answered].tolist())
        return bool(answered.any())

    def waits_for(self) -> str:
        return f"observations of environments {self._envs.tolist()}"

    def _ready(self) -> tuple[Words, Words]:
        """The environments to answer now, and their tickets."""
        envs = self._exchange.pending(self._envs)
        tickets = self._exchange.requests[envs]
        if self._has_step_barrier:
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
    def _answer(self, version: int, columns: Words, storages: Words, rows: Words, to_act: NDArray[np.bool_]) -> None:
        """Decide for agents with one version."""
        batch_rows, batch_columns, places = self._shape.lay_out(storages * self._rows_per_storage + rows, columns)
        index = torch.from_numpy(batch_rows * self._num_columns + batch_columns)
        version, decision = self._decide(version, index)
        actions, log_probs, values = (answer.cpu().numpy()[places] for answer in decision[:3])
        fields, acting = self._storages, (storages[to_act], rows[to_act], columns[to_act])
        fields["actions"][acting] = actions[to_act]
        reach("inside an answer")
        fields["log_probs"][acting] = log_probs[to_act]
        fields["values"][acting] = values[to_act]
        fields["versions"][acting] = version
        if decision.states is not None:
            self._remember(decision.states.cpu().numpy()[places][to_act], *acting)
        if not to_act.all():
            before = (storages[~to_act], rows[~to_act] - 1, columns[~to_act])
            fields["bootstrap_values"][before] = values[~to_act]
            if BOOTSTRAP_VERSIONS in fields.fields:
                fields[BOOTSTRAP_VERSIONS][before] = version

    def _decide(self, version: int, index: Tensor) -> tuple[int, Decision]:
        """Decide for rows of the storages; the version is another only where an asynchronous learner overtook it."""
        inputs = {name: steps[index].to(self._device) for name, steps in self._input_steps.items()}
        noise = self._noise_steps[index].to(self._device)
        while True:
            policy = self._parameters.module(version)
            assert isinstance(policy, Policy)
            decision = policy.decide(inputs, noise)
            newest = self._exchange.published_version
            if newest <= version + 1:
                return version, decision
            version = newest  # the slot that was read may be the next draft's by now

    def _remember(self, states: NDArray[Any], storages: Words, rows: Words, columns: Words) -> None:
        """Keep the memory for the rows that follow; an agent that is not active remembers nothing."""
        if "active" in self._storages.fields:
            states = np.where(self._storages["active"][storages, rows, columns, None], states, np.float32(0))
        self._storages[MEMORY][storages, rows + 1, columns] = states
