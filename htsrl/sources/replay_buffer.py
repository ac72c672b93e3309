"""A replay buffer: the newest transitions of a run, in shared memory, from which gradients draw minibatches.

It holds so many steps of every environment, each with the observation that truly followed it. Before update u learns,
the learner puts rollout u over the oldest; where is a matter of u alone, so a learner that was killed writes the same
numbers to the same places again. Which steps a gradient draws is a function of (seed, update, gradient step), so
everybody who takes a share of it draws the same. Checkpoints keep as much of it as is filled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.dataflow.exchange import Words
from htsrl.dataflow.shared_arrays import ArraySpec, SharedArrays
from htsrl.dataflow.trajectory import FINAL_PREFIX, TrajectorySpec
from htsrl.processes.kill_points import kill_point
from htsrl.seeding import replay_draws
from htsrl.sources.priorities import Priorities, PriorityRule

PREFIX = "replay/"
NEXT_PREFIX = "next "
STORED = ("actions", "rewards", "terminated", "truncated")
Fields = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Sampled:
    """Some transitions, a row each, over up to n steps."""

    observations: Mapping[str, NDArray[Any]]
    actions: NDArray[Any]
    """Of the first step."""
    rewards: NDArray[np.float32]
    """Discounted sum over the steps, which end with the episode or with what is known."""
    next_observations: Mapping[str, NDArray[Any]]
    """What truly followed the last of the steps."""
    discounts: NDArray[np.float32]
    """What a value there is worth now: 0 after a termination, not after a time limit."""
    places: Words | None = None
    """Where they lie in the buffer."""
    likelihoods: NDArray[np.float32] | None = None
    """How many times as likely each was drawn as under uniform draws, where there are priorities."""


def rows_of(trajectory: TrajectorySpec, capacity: int) -> int:
    """How many steps of every environment the buffer holds: whole rollouts, at least one."""
    return max(capacity // (trajectory.num_columns * trajectory.num_steps), 1) * trajectory.num_steps


def replay_arrays(trajectory: TrajectorySpec, capacity: int, priorities: PriorityRule | None = None) -> list[ArraySpec]:
    """Written by the learner; none without a capacity."""
    if not capacity:
        return []
    fields = {field.name: field for field in trajectory.fields}
    kinds = {name: fields[name] for name in (*trajectory.observation_names, *STORED)}
    kinds |= {NEXT_PREFIX + name: fields[name] for name in trajectory.observation_names}
    lead = (rows_of(trajectory, capacity), trajectory.num_columns)
    data = [
        ArraySpec(PREFIX + name, (*lead, *kind.shape), kind.dtype, "appended", trajectory.num_steps)
        for name, kind in kinds.items()
    ]
    return data + (priorities.arrays(*lead, trajectory.num_steps) if priorities else [])


class ReplayBuffer:
    """The newest transitions; only the learner puts, everybody who takes gradients draws."""

    def __init__(
        self, memory: SharedArrays, trajectory: TrajectorySpec, capacity: int, priorities: PriorityRule | None = None
    ) -> None:
        self._arrays = {
            spec.name.removeprefix(PREFIX): memory[spec.name] for spec in replay_arrays(trajectory, capacity)
        }
        self._names = trajectory.observation_names
        self._num_steps = trajectory.num_steps
        self._num_rows, self._num_columns = rows_of(trajectory, capacity), trajectory.num_columns
        self.priorities = Priorities(memory, priorities) if priorities else None

    def put(self, update: int, fields: Fields) -> None:
        """Take in the batch of an update, over what is oldest."""
        first = update * self._num_steps % self._num_rows
        rows = slice(first, first + self._num_steps)
        if self.priorities is not None:
            self.priorities.begin(update, rows)
        for name in (*self._names, *STORED):
            self._arrays[name][rows] = fields[name]
            kill_point("inside a replay write")
        ends = fields["terminated"] | fields["truncated"]
        ends[-1] = True  # the next row is another rollout's
        for name in self._names:
            following = self._arrays[NEXT_PREFIX + name][rows]
            following[:-1] = fields[name][1:]
            following[ends] = fields[FINAL_PREFIX + name][ends]

    def size(self, update: int) -> int:
        """How many transitions it holds when the update learns."""
        return self._filled(update) * self._num_columns

    def sample(self, seed: int, update: int, gradient_step: int, size: int, discount: float, n: int = 1) -> Sampled:
        """A minibatch drawn with replacement, uniformly or by priority, over `n` steps each."""
        if self.priorities is not None:
            draw = self.priorities.draw(seed, update, gradient_step, size, self.size(update))
            rows, columns = np.divmod(draw[0], self._num_columns)
            ages = (rows - self._oldest(update)) % self._num_rows
            return replace(self.transitions(update, ages, columns, discount, n), likelihoods=draw[1])
        drawn = replay_draws(seed, update, gradient_step, self.size(update), size)
        ages, columns = np.divmod(drawn, self._num_columns)  # 0: the oldest row
        return self.transitions(update, ages, columns, discount, n)

    def transitions(self, update: int, ages: Words, columns: Words, discount: float, n: int) -> Sampled:
        """Those that begin at these rows, counted from the oldest, and columns."""
        filled = self._filled(update)
        first = (self._oldest(update) + ages) % self._num_rows
        row, last, worth = first, first, np.ones(len(first), np.float32)
        rewards, goes_on = np.zeros(len(first), np.float32), np.ones(len(first), np.bool_)
        for step in range(n):
            last = np.where(goes_on, row, last)
            rewards += np.where(goes_on, worth * self._arrays["rewards"][row, columns], np.float32(0))
            worth = np.where(goes_on, worth * np.float32(discount), worth)
            ended = self._arrays["terminated"][row, columns] | self._arrays["truncated"][row, columns]
            goes_on &= ~ended & (ages + step + 1 < filled)
            row = (row + 1) % self._num_rows
        has_future = ~self._arrays["terminated"][last, columns]
        return Sampled(
            {name: self._arrays[name][first, columns] for name in self._names},
            self._arrays["actions"][first, columns],
            rewards,
            {name: self._arrays[NEXT_PREFIX + name][last, columns] for name in self._names},
            np.where(has_future, worth, np.float32(0)),
            first * self._num_columns + columns,
        )

    def _oldest(self, update: int) -> int:
        is_full = self._filled(update) == self._num_rows
        return (update + 1) * self._num_steps % self._num_rows if is_full else 0

    def _filled(self, update: int) -> int:
        return min((update + 1) * self._num_steps, self._num_rows)
