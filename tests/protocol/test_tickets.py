"""Tickets number the requests of an environment without loss and in the order in which it asks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htsrl.dataflow.exchange import Tickets

num_steps = st.integers(1, 300)
rollouts = st.integers(0, 10**6)


@given(num_steps, rollouts, st.data())
def test_a_ticket_gives_back_its_rollout_row_and_kind(num_steps: int, rollout: int, data: st.DataObject) -> None:
    tickets = Tickets(rows_per_rollout=num_steps + 1)
    row = data.draw(st.integers(0, num_steps))
    both = np.array([tickets.to_act(rollout, row), tickets.for_value(rollout, row)])
    found_rollouts, found_rows = tickets.rollout_and_row(both)
    assert found_rollouts.tolist() == [rollout, rollout]
    assert found_rows.tolist() == [row, row]
    assert tickets.asks_to_act(both).tolist() == [True, False]
    assert [tickets.rollout(ticket) for ticket in both.tolist()] == [rollout, rollout]
    assert [Tickets.is_for_value(ticket) for ticket in both.tolist()] == [False, True]


@given(st.integers(-100, 100), st.integers(-100, 100))
def test_a_handshake_asks_for_nothing(request: int, answer: int) -> None:
    handshake = Tickets.handshake(request, answer)
    assert Tickets.is_handshake(handshake)
    assert not Tickets.is_for_value(handshake)


@given(num_steps, rollouts)
def test_tickets_grow_in_the_order_in_which_an_environment_asks(num_steps: int, first_rollout: int) -> None:
    """An environment acts on row 0, may ask for the value of row 1, acts on row 1, ..., may ask for that of row T."""
    tickets = Tickets(rows_per_rollout=num_steps + 1)
    asked = []
    for rollout in (first_rollout, first_rollout + 1):
        for row in range(num_steps):
            asked += [tickets.to_act(rollout, row), tickets.for_value(rollout, row + 1)]
    assert all(earlier < later for earlier, later in pairwise(asked))


def test_no_ticket_is_the_zero_that_memory_starts_with() -> None:
    tickets = Tickets(rows_per_rollout=2)
    assert min(tickets.to_act(0, 0), tickets.for_value(0, 1)) > 0
