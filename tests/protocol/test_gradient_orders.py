"""Gradient orders: who has what to do follows from the words alone, whoever has died and been replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from htsrl.dataflow.gradient_orders import GradientOrder, GradientOrders, Helpers, gradient_arrays
from htsrl.dataflow.shared_arrays import SharedArrays

FIRST, SECOND = GradientOrder(3, 0, 1, True, 0, 20, 18), GradientOrder(3, 1, 1, False, 20, 40, 20)


@pytest.fixture
def block() -> Iterator[SharedArrays]:
    """Of the learner and two gradient workers."""
    arrays = SharedArrays(gradient_arrays(num_shards=4, num_parameters=16, num_workers=3, num_rows=40, num_targets=4))
    yield arrays
    arrays.close_fd()


def test_in_a_new_run_there_is_nothing_to_do(block: SharedArrays) -> None:
    orders = GradientOrders(block)
    assert orders.pending(1) is None
    assert orders.unanswered() == []


def test_an_order_is_there_for_each_gradient_worker_until_its_own_answer(block: SharedArrays) -> None:
    orders = GradientOrders(block)
    orders.issue(FIRST)
    assert orders.pending(1) == orders.pending(2) == FIRST
    orders.answer(2)
    assert orders.pending(1) == FIRST
    assert orders.pending(2) is None
    assert orders.unanswered() == [1]
    orders.answer(1)
    assert orders.unanswered() == []


def test_the_same_order_twice_is_carried_out_twice(block: SharedArrays) -> None:
    """A learner that begins an update anew orders what the dead one had ordered, and must not take its answers."""
    for _ in range(2):
        orders = GradientOrders(block)
        orders.issue(FIRST)
        assert orders.unanswered() == [1, 2]
        for worker in orders.unanswered():
            orders.answer(worker)


def test_nothing_of_an_order_may_change_before_all_have_answered(block: SharedArrays) -> None:
    GradientOrders(block).issue(FIRST)
    GradientOrders(block).answer(1)
    successor = GradientOrders(block)
    with pytest.raises(AssertionError, match=r"\[2\] may still be reading order 1"):
        successor.issue(SECOND)
    assert successor.pending(2) == FIRST


def test_the_learner_rings_after_the_order_and_waits_for_all(block: SharedArrays) -> None:
    orders, heard = GradientOrders(block), list[tuple[GradientOrder | None, list[int]]]()

    def wait(it_is_so: Callable[[], bool], waits_for: Callable[[], str]) -> None:
        assert not it_is_so()
        assert waits_for() == "the shards of gradient workers [1, 2]"
        orders.answer(1)
        assert not it_is_so()
        assert waits_for() == "the shards of gradient workers [2]"
        orders.answer(2)
        assert it_is_so()

    helpers = Helpers(orders, lambda: heard.append((orders.pending(1), orders.unanswered())), wait)
    helpers.ask(FIRST)
    assert heard == [(FIRST, [1, 2])]
    helpers.await_answers()
