"""What the learner knows beside the parameters, in shared memory: a slot for each version, as the parameters have.

It is written before the version is published, so a learner that is started again continues from the newest version as
the one before it would have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from htsrl.dataflow.shared_arrays import ArraySpec, SharedArrays
from htsrl.dataflow.versions import slot_of

CHAIN_BYTES = 16
EPISODE_WINDOWS = "episode_windows"
NUM_HASHED_COLUMNS = 2
"""Of an episode: return and length, which the digest knows; the numbers of its info behind them are only shown."""


def learner_arrays(window: int, num_columns: int, num_slots: int) -> list[ArraySpec]:
    """Written by the learner; `window` is how many episodes it remembers, `num_columns` how many numbers of each."""
    return [
        ArraySpec("digest_chains", (num_slots, CHAIN_BYTES), "uint8", kept_by="version"),
        ArraySpec("episode_counts", (num_slots,), "int64", kept_by="version"),
        ArraySpec("env_errors", (num_slots,), "int64", kept_by="version"),
        ArraySpec(EPISODE_WINDOWS, (num_slots, num_columns, window), "float64", kept_by="version"),
    ]


class LearnerSlots:
    """The digest's chain, numbers of the last episodes, and how many were cut by errors, by version."""

    def __init__(self, block: SharedArrays) -> None:
        self._chains = block["digest_chains"]
        self._counts = block["episode_counts"]
        self._windows = block[EPISODE_WINDOWS]
        self._env_errors = block["env_errors"]

    def write(self, version: int, chain: str, episodes: Iterable[Sequence[float]], env_errors: int) -> None:
        slot, rows = self._slot_of(version), [*episodes]
        count = len(rows)
        self._chains[slot] = np.frombuffer(bytes.fromhex(chain), np.uint8)
        if rows:
            self._windows[slot, :, :count] = np.array(rows, np.float64).T
        self._counts[slot] = count
        self._env_errors[slot] = env_errors

    def chain(self, version: int) -> str:
        return bytes(self._chains[self._slot_of(version)]).hex()

    def env_errors(self, version: int) -> int:
        return int(self._env_errors[self._slot_of(version)])

    def episodes(self, version: int) -> list[tuple[float, ...]]:
        """A row for each, oldest first: return, length, and whatever else is remembered."""
        slot = self._slot_of(version)
        return [tuple(row) for row in self._windows[slot, :, : self._counts[slot]].T.tolist()]

    def _slot_of(self, version: int) -> int:
        return slot_of(version, len(self._chains))
