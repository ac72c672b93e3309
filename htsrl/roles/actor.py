"""The actor: takes whatever observations are ready, runs the policy, writes the answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from htsrl.schedules.schedule import Asked, has_step_barrier, loosely


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
        self._schedule = loosely(shared.schedule)
        self._has_step_barrier = has_step_barrier(shared.schedule)
        self._parameters = parameters
        self._shape = shape
        self._notify_executors = notify_executors
        self._device = parameters.slots.device
        self._num_agents = storages.spec.num_agents
        self._num_columns = storages.spec.num_columns
        # One row more than there are steps, for the value of what follows the last.
        self._rows_per_storage = storages.spec.num_steps + 1
        self._num_rows = storages.spec.num_storages * self._rows_per_storage
        # The storages, rows and columns of a field as one axis of cells.
        self._fields = {name: array.reshape(-1, *array.shape[3:]) for name, array in storages.fields.items()}
        self._inputs = tuple(storages.inputs)
        self._keeps_activations = bool(storages.spec.activation_names)

    def advance(self) -> bool:
        envs, tickets = self._ready()
        if not len(envs):
            return False
        greets = self._exchange.tickets.greets(tickets)
        was_greeted = bool(np.count_nonzero(greets))
        if was_greeted:
            self._hand_over(envs[greets], tickets[greets])
            envs, tickets = envs[~greets], tickets[~greets]
        # After the requests: whatever a version answers was asked for while it was the newest, which replays rely on.
        published, rollouts = self._exchange.published_version, self._exchange.tickets.rollouts(tickets)
        versions = self._schedule.acting_versions(Asked(envs, tickets, rollouts), published)
        asked_for = sorted(set(versions.tolist()))
        acting = [version for version in asked_for if version <= published]
        for version in acting:
            chosen = versions == version if len(asked_for) > 1 else slice(None)
            self._answer(version, envs[chosen], tickets[chosen])
        return was_greeted or bool(acting)

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

    def _answer(self, version: int, envs: Words, tickets: Words) -> None:
        """Decide for environments with one version."""
        columns, asked = self._per_agent(envs, tickets)
        rows = (asked - 1) // 2 % self._num_rows
        input_cells = rows * self._num_columns + columns
        # Of what is learned from, each storage has one row less.
        cells = input_cells - rows // self._rows_per_storage * self._num_columns
        batch, places = self._shape.lay_out(input_cells, columns)
        version, decision = self._decide(version, batch)
        answers = {name: answer.numpy(force=True)[places] for name, answer in _named(decision)}
        to_act = self._exchange.tickets.asks_to_act(asked)
        if np.count_nonzero(to_act) < len(to_act):
            cells_before = cells[~to_act] - self._num_columns
            self._fields["bootstrap_values"][cells_before] = answers["values"][~to_act]
            if BOOTSTRAP_VERSIONS in self._fields:
                self._fields[BOOTSTRAP_VERSIONS][cells_before] = version
            input_cells, cells = input_cells[to_act], cells[to_act]
            answers = {name: answer[to_act] for name, answer in answers.items()}
        if MEMORY in answers:
            self._remember(answers.pop(MEMORY), input_cells, cells)
        for name, answer in answers.items():
            self._fields[name][cells] = answer
            reach("inside an answer")
        self._fields["versions"][cells] = version
        self._hand_over(envs, tickets)

    def _hand_over(self, envs: Words, tickets: Words) -> None:
        reach("before an answer")
        self._exchange.answers[envs] = tickets
        reach("after an answer")
        self._notify_executors(envs.tolist())

    def _per_agent(self, envs: Words, tickets: Words) -> tuple[Words, Words]:
        """The columns of all agents of these environments, and what they ask for."""
        if self._num_agents == 1:
            return envs, tickets
        columns: Words = (envs[:, None] * self._num_agents + np.arange(self._num_agents)).reshape(-1)
        return columns, tickets.repeat(self._num_agents)

    @torch.inference_mode()
    def _decide(self, version: int, cells: Words) -> tuple[int, Decision]:
        """What a policy makes of these cells; its version is another only where an asynchronous learner overtook it."""
        inputs = {name: self._taken(name, cells) for name in self._inputs}
        noise = self._taken("noise", cells)
        while True:
            policy = self._parameters.module(version)
            assert isinstance(policy, Policy)
            decision = policy.decide(inputs, noise, self._keeps_activations)
            newest = self._exchange.published_version
            if newest <= version + 1:
                return version, decision
            version = newest  # the slot that was read may be the next draft's by now

    def _taken(self, name: str, cells: Words) -> Tensor:
        """Copied by NumPy: torch takes three times as long for 16 small rows, twenty times for Atari's images."""
        return torch.from_numpy(self._fields[name].take(cells, axis=0)).to(self._device)

    def _remember(self, states: NDArray[Any], input_cells: Words, cells: Words) -> None:
        """Keep the memory for the rows that follow; an agent that is not active remembers nothing."""
        if "active" in self._fields:
            states = np.where(self._fields["active"][cells, None], states, np.float32(0))
        self._fields[MEMORY][input_cells + self._num_columns] = states


def _named(decision: Decision) -> Iterator[tuple[str, Tensor]]:
    """The parts of a decision, by the fields that they belong in."""
    yield "actions", decision.actions
    yield "log_probs", decision.log_probs
    yield "values", decision.values
    if decision.states is not None:
        yield MEMORY, decision.states
    yield from decision.activations.items()
