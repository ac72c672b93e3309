"""How a batch of ready rows is laid out for the network, so that a row's bits do not depend on who else was ready."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from htsrl.dataflow.exchange import Words


@dataclass(frozen=True)
class ReferenceShape:
    """Found by `policies.reference_probe` for one network on one device."""

    sizes: tuple[int, ...]
    """Batch sizes in which every row has the same bits, ascending; batches are padded up to the next one."""
    pinned: bool = False
    """Where only one size will do, and only if each column keeps to its own row."""

    def lay_out(self, rows: Words, columns: Words) -> tuple[Words, Words, Words]:
        """The (row, column) of every row of the network's batch, and where in it the asked-for ones are.

        Padding repeats an asked-for row: others may be half written.
        """
        places = columns if self.pinned else np.arange(len(rows))
        size = next(size for size in self.sizes if size >= len(rows))
        if size == len(rows) and not self.pinned:
            return rows, columns, places
        batch_rows, batch_columns = np.full(size, rows[0]), np.full(size, columns[0])
        batch_rows[places], batch_columns[places] = rows, columns
        return batch_rows, batch_columns, places
