"""The actor: takes whatever observations are ready, runs the policy, writes the answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.dataflow.exchange import Asked, Request, Tickets, Words
from htsrl.dataflow.reference_shape import ReferenceShape
from htsrl.dataflow.trajectory import BOOTSTRAP_VERSIONS, RECURRENT_STATE
from htsrl.numerics import OwnNumerics
from htsrl.processes.kill_points import kill_point
from htsrl.roles.answers import Answers, LightAnswers
from htsrl.roles.role import NotifyFor
from htsrl.roles.shared import Shared


class Actor:
    """Serves a fixed set of environments; holds no state, so any actor would give the same answers."""

    def __init__(
        self,
        envs: Sequence[int],
        shared: Shared,
        answers: Answers,
        shape: ReferenceShape,
        notify_executors: NotifyFor,
        first_env: int = 0,
    ) -> None:
        """`first_env` is the first of those that learn together with them: rows may be told apart by columns."""
        self._envs = np.array(envs, dtype=np.int64)
        self.answers = answers
        self._numerics = OwnNumerics(uses_torch=not isinstance(answers, LightAnswers))
        self._exchange = shared.exchange
        self._schedule = shared.schedule
        self._shape = shape
        self._notify_executors = notify_executors
        spec = shared.storages.spec
        self._is_lane = spec.is_lane
        self._num_agents = spec.num_agents
        self._num_columns = spec.num_columns
        self._first_column = first_env * spec.num_agents
        # One row more than there are steps, for the value of what follows the last.
        self._rows_per_storage = spec.num_steps + 1
        self._num_rows = spec.num_storages * self._rows_per_storage
        self._fields = shared.storages.cells
        self._columns = self._per_agent([env * spec.num_agents for env in envs])

    def advance(self) -> bool:
        asked = self._ready()
        if not asked:
            return False
        # After the requests: whatever a version answers was asked for while it was the newest, which recorded schedules
        # rely on.
        published = self._exchange.published_version
        handshakes = Asked()
        to_act: dict[int, Asked] = {}  # by version
        for_value: dict[int, Asked] = {}
        for alike in self._alike(asked):
            env, ticket = next(iter(alike.items()))
            if Tickets.is_handshake(ticket):
                handshakes |= alike
                continue
            request = Request(env, self._exchange.tickets.rollout(ticket), ticket)
            version = self._schedule.answering_version(request, published)
            if version <= published:
                kind = for_value if Tickets.is_for_value(ticket) else to_act
                kind[version] = kind[version] | alike if version in kind else alike
        if handshakes:
            self._hand_over(handshakes)
        for version, of_version in self._batches(to_act):
            self._act(version, of_version)
        for version, of_version in self._batches(for_value):
            self._value(version, of_version)
        return bool(handshakes or to_act or for_value)

    def _alike(self, asked: Asked) -> Iterable[Asked]:
        """Those that a schedule is asked about together: one version acts in a rollout, unless versions mix."""
        if self._schedule.mixes_versions:
            return [{env: ticket} for env, ticket in asked.items()]
        if len(set(asked.values())) == 1:
            return [asked]
        alike: dict[int, Asked] = {}
        for env, ticket in asked.items():
            alike.setdefault(ticket, {})[env] = ticket
        return alike.values()

    def _batches(self, asked: dict[int, Asked]) -> list[tuple[int, Asked]]:
        """Everything that one version answers, or lane by lane, so that the rows beside one another never differ."""
        batches = sorted(asked.items())
        if not self._is_lane:
            return batches
        return [(version, {lane: ticket}) for version, lanes in batches for lane, ticket in lanes.items()]

    def waits_for(self) -> str:
        return f"observations of environments {self._envs.tolist()}"

    def _ready(self) -> Asked:
        """What to answer now."""
        pending = self._exchange.pending(self._envs)
        if not self._schedule.step_barrier:
            return pending
        reached = self._exchange.reached_by_all()
        # The value of a final observation is part of a step, so it does not wait for the others.
        return {
            env: ticket
            for env, ticket in pending.items()
            if ticket <= reached or Tickets.is_for_value(ticket) or Tickets.is_handshake(ticket)
        }

    def _act(self, version: int, asked: Asked) -> None:
        """Decide for environments with one version."""
        columns, input_cells, cells = self._places(asked)
        batch, places = self._shape.lay_out(input_cells, columns)
        with self._numerics:
            version, answers = self.answers.act(version, batch)
        for name, answer in answers.items():
            if name == RECURRENT_STATE:
                self._remember(answer[places], input_cells, cells)
            else:
                self._fields[name][cells] = answer[places]
            kill_point("inside an answer")
        self._fields["versions"][cells] = version
        self._hand_over(asked)

    def _value(self, version: int, asked: Asked) -> None:
        """Say what there is to expect, after the step before, of what environments see."""
        columns, input_cells, cells = self._places(asked)
        if self._is_lane:
            cut = self._cut_before(cells)
            columns, input_cells, cells = columns[cut], input_cells[cut], cells[cut]
        batch, places = self._shape.lay_out(input_cells, columns)
        with self._numerics:
            version, values = self.answers.value(version, batch)
        cells_before = cells - self._num_columns
        self._fields["bootstrap_values"][cells_before] = values[places]
        if BOOTSTRAP_VERSIONS in self._fields:
            self._fields[BOOTSTRAP_VERSIONS][cells_before] = version
        self._hand_over(asked)

    def _cut_before(self, cells: Words) -> NDArray[np.bool_]:
        """Of the environments of a lane, those whose episode a time limit has just cut."""
        before = cells - self._num_columns
        cut: NDArray[np.bool_] = self._fields["truncated"][before] & ~self._fields["terminated"][before]
        return cut

    def _hand_over(self, asked: Asked) -> None:
        kill_point("before an answer")
        answers = self._exchange.answer_to
        for env, ticket in asked.items():
            answers[env] = ticket
        kill_point("after an answer")
        self._notify_executors(list(asked))

    def _places(self, asked: Asked) -> tuple[Words, Words, Words]:
        """Of all agents of these environments: their columns, counted from the first of those that learn together,
        and the cells of their inputs and of the other fields.

        In Python's own numbers, for there are few of them: an operation of NumPy is found anew between simulator steps,
        which leave nothing of it in the processor's caches.
        """
        if len(asked) == len(self._envs) and len(set(asked.values())) == 1:
            return self._places_in_row(next(iter(asked.values())))
        columns, input_cells, cells = [], [], []
        for env, ticket in asked.items():
            row = (ticket - 1) // 2 % self._num_rows
            column = env * self._num_agents
            input_cell = row * self._num_columns + column
            columns.append(column - self._first_column)
            input_cells.append(input_cell)
            # Of what is learned from, each storage has one row less.
            cells.append(input_cell - row // self._rows_per_storage * self._num_columns)
        return self._per_agent(columns), self._per_agent(input_cells), self._per_agent(cells)

    def _places_in_row(self, ticket: int) -> tuple[Words, Words, Words]:
        """The same of all environments, where they have all come as far."""
        row = (ticket - 1) // 2 % self._num_rows
        input_cells = self._columns + row * self._num_columns
        cells = input_cells - row // self._rows_per_storage * self._num_columns
        return self._columns - self._first_column, input_cells, cells

    def _per_agent(self, of_first_agents: list[int]) -> Words:
        """Agents of an environment are neighbours."""
        first = np.array(of_first_agents)
        return first if self._num_agents == 1 else (first[:, None] + np.arange(self._num_agents)).reshape(-1)

    def _remember(self, states: NDArray[Any], input_cells: Words, cells: Words) -> None:
        """Keep the recurrent state for the rows that follow; an agent that is not active remembers nothing."""
        if "active" in self._fields:
            states = np.where(self._fields["active"][cells, None], states, np.float32(0))
        self._fields[RECURRENT_STATE][input_cells + self._num_columns] = states
