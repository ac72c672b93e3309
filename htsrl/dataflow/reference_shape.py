"""How a batch of ready rows is laid out for the network, so that a row's bits do not depend on who else was ready."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from htsrl.dataflow.exchange import Words


@dataclass(frozen=True)
class ReferenceShape:
    """Found by `policies.reference_probe` for one network on one device."""

    least_rows: int
    """Smaller batches are padded up to this."""
    pinned: bool = False
    """Where no least size will do: a batch always has a row for every environment, each in its own."""

    def lay_out(self, rows: Words, envs: Words) -> tuple[Words, Words, Words]:
        """The (row, env) of every row of the network's batch, and where in it the asked-for ones are."""
        if self.pinned:
            batch_rows = np.zeros(self.least_rows, dtype=np.int64)
            batch_rows[envs] = rows
            return batch_rows, np.arange(self.least_rows), envs
        missing = self.least_rows - len(rows)
        if missing > 0:
            return (
                np.pad(rows, (0, missing), mode="edge"),
                np.pad(envs, (0, missing), mode="edge"),
                np.arange(len(rows)),
            )
        return rows, envs, np.arange(len(rows))
