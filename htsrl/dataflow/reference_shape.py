"""How a batch of ready rows is laid out for the network, so that a row's bits do not depend on who else was ready."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from htsrl.dataflow.exchange import Words

Places = Words | slice


@dataclass(frozen=True)
class ReferenceShape:
    """Found by `policies.reference_probe` for one network on one device; without sizes, every batch is as it is, for
    those who always ask for the same rows in the same order, as lanes do."""

    sizes: tuple[int, ...]
    """Batch sizes in which every row has the same bits, ascending; batches are padded up to the next one."""
    pinned: bool = False
    """Where only one size will do, and only if each column keeps to its own row."""

    def lay_out(self, cells: Words, columns: Words) -> tuple[Words, Places]:
        """The cell that each row of the network's batch shows, and where in it the asked-for ones are.

        Padding repeats an asked-for cell: others may be half written.
        """
        count = len(cells)
        if not self.sizes:
            return cells, slice(count)
        size = self.sizes[bisect_left(self.sizes, count)]
        places = columns if self.pinned else slice(count)
        if size == count and not self.pinned:
            return cells, places
        batch = np.full(size, cells[0])
        batch[places] = cells
        return batch, places


AS_ASKED = ReferenceShape(sizes=())
"""Whoever asks is answered alone."""
