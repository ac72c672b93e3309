"""Gradient orders: how the learner shares out the shards of its work, over shared memory and without a lock.

The learner writes what the order is about, and then its number, into `gradient_order`. Each gradient worker finds a
number that is not its own answer, takes its shards into their rows of `shard_gradients` and `shard_losses`, and then
writes the number into its word of `gradient_answers`. The learner has taken its own shards meanwhile, waits until all
answers are its number, and adds the rows up. An order names the update, and so the storage, which everybody maps, and
the slot of the parameters to differentiate, to which everybody has views; what is copied is which sequences are chosen.
Their targets the learner writes where everybody looks.

Some of the targets are not the learner's: in its first epoch PPO has whoever takes a shard write down what the policy
made of the shard's steps. No gradient of that epoch reads them, and those of later epochs are ordered when all have
answered.

**What an order is about changes only while every answer is its number.** So nobody ever computes from something that
is being written, and what was begun for an order can be done once more:

- A gradient worker killed before its answer, wherever: its successor finds a number that it has not answered, and takes
  its shards from the start; nothing that they are made from has changed. Killed after its answer, it had nothing left
  to do but ring.
- The learner killed before the number, whatever it has written of the order: nobody looks there. Killed after it: its
  successor, which begins the update anew, waits for the answers to the order that it finds before it touches the draft,
  the targets or the order. Then it gives orders with the numbers that follow, so an answer to the dead learner's order
  is none to its own. The rows that the dead learner left, half summed or clipped, are written anew.
- Killed before a bell was rung: the supervisor rings all when it replaces somebody.

A version is published after the answers to its last order, so nobody reads a storage that executors may write to.
As with tickets, a word is written after the data that it announces, and x86-64 shows others the two in that order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from htsrl.dataflow.exchange import Words
from htsrl.dataflow.shared_arrays import ArraySpec, SharedArrays
from htsrl.processes.kill_points import kill_point

MAX_PARTS = 8
"""Numbers that a loss can be."""


class GradientOrder(NamedTuple):
    """A gradient to take; in shared memory its number comes first."""

    update: int
    epoch: int
    slot: int
    """Of the parameters that it is taken at."""
    is_shuffled: int
    """Whether the sequences are written down one by one, or are neighbours."""
    begin: int
    end: int
    num_steps: int
    """The loss is a mean over so many."""
    model: int = 0
    """0: of the policy, by an objective that is given the policy alone. Others: place among all models, from 1 on."""


def gradient_arrays(
    num_shards: int, num_parameters: int, num_workers: int, num_rows: int, num_targets: int
) -> list[ArraySpec]:
    """By writer; `num_rows` is how many steps a batch holds, and so how many sequences at most, and `num_targets` how
    many numbers its gradients aim at for each."""
    return [
        ArraySpec("gradient_order", (1 + len(GradientOrder._fields),), "int64"),  # the learner
        ArraySpec("gradient_sequences", (num_rows,), "int64"),  # the learner
        ArraySpec("gradient_targets", (num_targets, num_rows), "float32"),  # the learner; some, who takes the shard
        ArraySpec("gradient_answers", (num_workers,), "int64"),  # each gradient worker its own; the learner is number 0
        ArraySpec("shard_gradients", (num_shards, num_parameters), "float32"),  # whoever takes the shard
        ArraySpec("shard_losses", (num_shards, MAX_PARTS), "float32"),  # whoever takes the shard
    ]


class GradientOrders:
    """The words between the learner and the gradient workers."""

    def __init__(self, block: SharedArrays) -> None:
        self._order: Words = block["gradient_order"]
        self._answers: Words = block["gradient_answers"]
        self.sequences: Words = block["gradient_sequences"]
        self.targets: NDArray[np.float32] = block["gradient_targets"]

    def issue(self, order: GradientOrder) -> None:
        """Once `sequences` and `targets` were written."""
        assert not self.unanswered(), f"{self.unanswered()} may still be reading order {self._order[0]}"
        self._order[1:] = order
        kill_point("before a gradient order")
        self._order[0] += 1
        kill_point("after a gradient order")

    def pending(self, worker: int) -> GradientOrder | None:
        if self._answers[worker] == self._order[0]:
            return None
        return GradientOrder(*self._order[1:].tolist())

    def answer(self, worker: int) -> None:
        kill_point("before a gradient answer")
        self._answers[worker] = self._order[0]
        kill_point("after a gradient answer")

    def unanswered(self) -> list[int]:
        """The gradient workers that have an order to carry out."""
        late: list[int] = (np.flatnonzero(self._answers[1:] != self._order[0]) + 1).tolist()
        return late


Wait = Callable[[Callable[[], bool], Callable[[], str]], None]
"""Sleeps until the first is true; the second says for whom."""


@dataclass(frozen=True)
class Helpers:
    """The gradient workers as the learner sees them."""

    orders: GradientOrders
    ring: Callable[[], None]
    wait: Wait

    def ask(self, order: GradientOrder) -> None:
        self.orders.issue(order)
        self.ring()

    def await_answers(self) -> None:
        self.wait(lambda: not self.orders.unanswered(), self._late)

    def _late(self) -> str:
        return f"the shards of gradient workers {self.orders.unanswered()}"
