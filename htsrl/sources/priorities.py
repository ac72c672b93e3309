"""Priorities of the transitions in a replay buffer (https://arxiv.org/abs/1511.05952, the proportional variant).

A transition is drawn with a probability that is proportional to p = (|error| + epsilon)^alpha, where its error is the
one that was found when it was last learned from; new ones have the highest p so far. What an update draws by stays as
it is for the whole update: errors that it finds count from the next update on. So everybody who takes a share of a
gradient draws the same, and one look at all priorities serves all gradient steps of an update.

Only the learner writes priorities. What update u finds is written down with version u+1, in a place that nobody reads
before that version is published; update u+1 begins by taking it over. That can be done any number of times: a learner
that is killed anywhere in between leaves its successor the same numbers. Errors are written by whoever takes the shard
of their rows, while an order is under way, and read by the learner when it is over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.config.algorithm_settings import CommonSettings
from htsrl.dataflow.exchange import Words
from htsrl.dataflow.shared_arrays import ArraySpec, SharedArrays
from htsrl.processes.kill_points import kill_point
from htsrl.seeding import replay_positions

PREFIX = "priorities/"
ERROR_OFFSET = 1e-6
"""Added to errors, so that nothing is never drawn again."""
NUM_SLOTS = 2
"""Of what was found: by the version before, and by the one being made."""


@dataclass(frozen=True)
class PriorityRule:
    """How much priorities count, and how many can be found in one update."""

    exponent: float
    minibatch_size: int
    max_gradient_steps: int

    @classmethod
    def of(cls, settings: CommonSettings, num_new: int) -> PriorityRule | None:
        """For updates with so many new transitions; None where draws are uniform."""
        if not settings.priority_exponent:
            return None
        most = int(np.ceil(settings.update_to_data * num_new)) + 1
        return cls(settings.priority_exponent, settings.minibatch_size, most)

    def arrays(self, num_rows: int, num_columns: int, rows_per_version: int) -> list[ArraySpec]:
        """Written by the learner, but for `errors`."""
        num_found = self.max_gradient_steps * self.minibatch_size
        return [
            ArraySpec(PREFIX + "now", (num_rows, num_columns), "float32", "filled", rows_per_version),
            ArraySpec(PREFIX + "found", (NUM_SLOTS, num_found), "float32", "version"),
            ArraySpec(PREFIX + "places", (NUM_SLOTS, num_found), "int64", "version"),
            ArraySpec(PREFIX + "num_found", (NUM_SLOTS,), "int64", "version"),
            ArraySpec(PREFIX + "highest", (NUM_SLOTS,), "float32", "version"),
            ArraySpec(PREFIX + "errors", (self.minibatch_size,), "float32"),  # whoever takes the shard of the rows
        ]


class Priorities:
    """Of all transitions of a replay buffer, by their places there."""

    def __init__(self, memory: SharedArrays, rule: PriorityRule) -> None:
        self._rule = rule
        self._now: NDArray[np.float32] = memory[PREFIX + "now"]
        self._found, self._places, self._num_found, self._highest, self._errors = (
            memory[PREFIX + name] for name in ("found", "places", "num_found", "highest", "errors")
        )
        self._sums: tuple[int, NDArray[np.float64]] | None = None

    def begin(self, update: int, new_rows: slice) -> None:
        """The learner's: take over what the update before has found, and give new rows the highest so far."""
        here, following = update % NUM_SLOTS, (update + 1) % NUM_SLOTS
        count = int(self._num_found[here])
        self._now.reshape(-1)[self._places[here, :count]] = self._found[here, :count]
        kill_point("inside a revision of priorities")
        highest = self._highest[here] if self._highest[here] > 0 else np.float32(1)
        self._now[new_rows] = highest  # also where what was found belongs to rows that are written over
        self._num_found[following] = 0
        self._highest[following] = highest
        self._sums = None

    def draw(self, seed: int, update: int, gradient_step: int, size: int, population: int) -> tuple[Words, Any]:
        """Places of `size` transitions of `population`, and how many times as likely each was as under uniform draws.

        One from each of `size` equal parts of the sum, as the paper has it.
        """
        sums = self._cumulative(update)
        positions = replay_positions(seed, update, gradient_step, size) * sums[-1]
        last = int(np.searchsorted(sums, sums[-1]))  # a position may be rounded up to the sum itself
        places = np.minimum(np.searchsorted(sums, positions, side="right"), last)
        return places, self._now.reshape(-1)[places] * (population / sums[-1])

    def note_errors(self, rows: Any, errors: NDArray[np.float32]) -> None:
        """Of some rows of the minibatch whose gradient is taken."""
        self._errors[rows] = errors

    def revise(self, update: int, gradient_step: int, places: Words) -> None:
        """The learner's: write down the errors of a gradient step, which were drawn from these places."""
        following, size = (update + 1) % NUM_SLOTS, self._rule.minibatch_size
        found = np.power(np.abs(self._errors.astype(np.float64)) + ERROR_OFFSET, self._rule.exponent)
        part = slice(gradient_step * size, (gradient_step + 1) * size)
        self._found[following, part] = found
        self._places[following, part] = places
        self._num_found[following] = part.stop
        self._highest[following] = max(self._highest[following], self._found[following, part].max())

    def _cumulative(self, update: int) -> NDArray[np.float64]:
        """Sums over all places up to each, which stay as they are for the whole update."""
        if self._sums is None or self._sums[0] != update:
            self._sums = update, np.cumsum(self._now, dtype=np.float64)
        return self._sums[1]
