"""The actor: takes whatever observations are ready, runs the policy, writes the answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from htsrl.dataflow.exchange import Asked, Tickets, Words
from htsrl.dataflow.parameters import ParameterRing
from htsrl.dataflow.reference_shape import ReferenceShape
from htsrl.dataflow.shared import Shared
from htsrl.dataflow.trajectory import BOOTSTRAP_VERSIONS, MEMORY
from htsrl.kill_points import reach
from htsrl.policies.policy import Decision, Policy
from htsrl.roles.role import NotifyFor
from htsrl.schedules.schedule import has_step_barrier, loosely


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
        self._schedule = loosely(shared.schedule, shared.exchange.tickets)
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
        asked = self._ready()
        if not asked:
            return False
        # After the requests: whatever a version answers was asked for while it was the newest, which replays rely on.
        published = self._exchange.published_version
        greetings: Asked = {}
        by_version: dict[int, Asked] = {}
        for env, ticket in asked.items():
            if Tickets.is_greeting(ticket):
                greetings[env] = ticket
            else:
                version = self._schedule.answering_version(env, ticket, published)
                by_version.setdefault(version, {})[env] = ticket
        if greetings:
            self._hand_over(greetings)
        acting = sorted(version for version in by_version if version <= published)
        for version in acting:
            self._answer(version, by_version[version])
        return bool(greetings or acting)

    def waits_for(self) -> str:
        return f"observations of environments {self._envs.tolist()}"

    def _ready(self) -> Asked:
        """What to answer now."""
        pending = self._exchange.pending(self._envs)
        if not self._has_step_barrier:
            return pending
        reached = self._exchange.reached_by_all()
        # The value of a final observation is part of a step, so it does not wait for the others.
        return {
            env: ticket
            for env, ticket in pending.items()
            if ticket <= reached or Tickets.is_for_value(ticket) or Tickets.is_greeting(ticket)
        }

    def _answer(self, version: int, asked: Asked) -> None:
        """Decide for environments with one version."""
        columns, input_cells, cells = self._places(asked)
        batch, places = self._shape.lay_out(input_cells, columns)
        version, decision = self._decide(version, batch)
        answers = {name: answer.numpy(force=True)[places] for name, answer in _named(decision)}
        for_value = [Tickets.is_for_value(ticket) for ticket in asked.values()]
        if any(for_value):
            to_act = ~np.repeat(for_value, self._num_agents)
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
        self._hand_over(asked)

    def _hand_over(self, asked: Asked) -> None:
        reach("before an answer")
        answers = self._exchange.answers
        for env, ticket in asked.items():
            answers[env] = ticket
        reach("after an answer")
        self._notify_executors(list(asked))

    def _places(self, asked: Asked) -> tuple[Words, Words, Words]:
        """Of all agents of these environments: their columns, and the cells of their inputs and of the other fields.

        In Python's own numbers, for there are few of them: an operation of NumPy is found anew between simulator steps,
        which leave nothing of it in the processor's caches.
        """
        columns, input_cells, cells = [], [], []
        for env, ticket in asked.items():
            row = (ticket - 1) // 2 % self._num_rows
            column = env * self._num_agents
            input_cell = row * self._num_columns + column
            columns.append(column)
            input_cells.append(input_cell)
            # Of what is learned from, each storage has one row less.
            cells.append(input_cell - row // self._rows_per_storage * self._num_columns)
        return self._per_agent(columns), self._per_agent(input_cells), self._per_agent(cells)

    def _per_agent(self, of_first_agents: list[int]) -> Words:
        """Agents of an environment are neighbours."""
        first = np.array(of_first_agents)
        return first if self._num_agents == 1 else (first[:, None] + np.arange(self._num_agents)).reshape(-1)

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
        taken = torch.from_numpy(self._fields[name].take(cells, axis=0))
        return taken if self._device.type == "cpu" else taken.to(self._device)

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
