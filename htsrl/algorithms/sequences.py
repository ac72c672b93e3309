"""The rows of a batch as sequences: neighbours in time, which a recurrent policy must see one after another.

Without a recurrent state every row is a sequence of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from htsrl.algorithms.batch import Batch, flat_steps
from htsrl.policies.policy import Past

Rows = Tensor | slice
Chosen = Tensor | slice
"""Some of the sequences of a batch, by their places in `Sequences.starts`."""


@dataclass(frozen=True)
class Piece:
    """Some sequences of a batch, as rows of its flattened steps."""

    rows: Rows
    """What the policy looks at: the first steps of all sequences, then their second steps, and so on."""
    learned: Rows
    """Those of the rows that the loss is about."""
    past: Past | None


class Sequences:
    """Cuts every column of a batch into sequences of `length` steps."""

    def __init__(self, batch: Batch, length: int) -> None:
        num_steps, self._num_columns = batch.log_probs.shape[:2]
        assert length == 1 or batch.states is not None, "without a recurrent state every step stands alone"
        self._length = length
        self._states = None if batch.states is None else flat_steps(batch.states)
        self._begins = None if batch.states is None else flat_steps(batch.episode_begins())
        is_filtered = isinstance(batch.learned_rows(), Tensor)
        self._learned = flat_steps(batch.active) if is_filtered and batch.active is not None else None
        rows = torch.arange(num_steps * self._num_columns, device=batch.log_probs.device)
        starts = rows.view(-1, length, self._num_columns)[:, 0].flatten()
        if self._learned is not None:
            starts = starts[self._learned[self._by_step(starts)].any(dim=0)]
        self.starts = starts
        """The first rows of the sequences that have something to learn from."""

    def piece(self, starts: Tensor) -> Piece:
        if self._states is None or self._begins is None:
            return Piece(starts, starts, None)
        rows_LN = self._by_step(starts)
        rows = rows_LN.flatten()
        counted = None if self._learned is None else self._learned[rows].nonzero().squeeze(1)
        past = Past(self._states[starts], self._begins[rows_LN], counted)
        return Piece(rows, rows if counted is None else rows[counted], past)

    def within(self, first: int, num_steps: int) -> slice:
        """All that begin within some steps of the batch."""
        rows = torch.tensor([first, first + num_steps], device=self.starts.device) * self._num_columns
        begin, end = torch.searchsorted(self.starts, rows).tolist()
        return slice(begin, end)

    def choose(self, chosen: Chosen) -> Piece:
        """Where all rows stand alone and are learned from, their places are their rows; neighbours are not copied."""
        if self._states is None and self._learned is None:
            return Piece(chosen, chosen, None)
        return self.piece(self.starts[chosen])

    def _by_step(self, starts: Tensor) -> Tensor:
        """The rows of the sequences that begin with `starts`, `[L, N]`."""
        steps = torch.arange(self._length, device=starts.device).unsqueeze(1)
        return starts + steps * self._num_columns


def cut(chosen: Chosen, num_shards: int) -> list[Chosen]:
    """Neighbours together, as evenly as possible; the last may be empty."""
    if isinstance(chosen, Tensor):
        return list(chosen.tensor_split(num_shards))
    size, larger = divmod(chosen.stop - chosen.start, num_shards)
    ends = [chosen.start + shard * size + min(shard, larger) for shard in range(num_shards + 1)]
    return [slice(begin, end) for begin, end in pairwise(ends)]


def taken(x: Tensor, rows: Rows) -> Tensor:
    """Neighbours as a view; others are copied row by row, where an index would go number by number.

    Where a row is a single number that is the same, and an index takes them of all types.
    """
    return x[rows] if isinstance(rows, slice) or x.dim() == 1 else x.index_select(0, rows)


def count(chosen: Chosen) -> int:
    return len(chosen) if isinstance(chosen, Tensor) else int(chosen.stop - chosen.start)
