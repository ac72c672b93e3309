"""What the learner knows beside the parameters, in shared memory: a slot for each version, as the parameters have.

It is written before the version is published, so a learner that is started anew goes on from the newest version as
the one before it would have.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from htsrl.dataflow.memory import ArraySpec, SharedArrays
from htsrl.dataflow.versions import NUM_SLOTS, slot_of

CHAIN_BYTES = 16


def learner_arrays(window: int) -> list[ArraySpec]:
    """Written by the learner; `window` is how many episodes it remembers."""
    return [
        ArraySpec("digest_chains", (NUM_SLOTS, CHAIN_BYTES), "uint8"),
        ArraySpec("episode_counts", (NUM_SLOTS,), "int64"),
        ArraySpec("env_errors", (NUM_SLOTS,), "int64"),
        ArraySpec("episode_windows", (NUM_SLOTS, 2, window), "float64"),
    ]


class LearnerSlots:
    """The digest's chain, the returns and lengths of the last episodes, and how many were cut by errors, by version."""

    def __init__(self, memory: SharedArrays) -> None:
        self._chains = memory["digest_chains"]
        self._counts = memory["episode_counts"]
        self._windows = memory["episode_windows"]
        self._env_errors = memory["env_errors"]

    def write(
        self, version: int, chain: str, returns: Iterable[float], lengths: Iterable[int], env_errors: int
    ) -> None:
        episodes = np.array([*zip(returns, lengths, strict=True)], np.float64).reshape(-1, 2)
        slot, count = slot_of(version), len(episodes)
        self._chains[slot] = np.frombuffer(bytes.fromhex(chain), np.uint8)
        self._windows[slot, :, :count] = episodes.T
        self._counts[slot] = count
        self._env_errors[slot] = env_errors

    def chain(self, version: int) -> str:
        return bytes(self._chains[slot_of(version)]).hex()

    def env_errors(self, version: int) -> int:
        return int(self._env_errors[slot_of(version)])

    def episodes(self, version: int) -> tuple[list[float], list[int]]:
        """Returns and lengths, oldest first."""
        slot = slot_of(version)
        returns, lengths = self._windows[slot, :, : self._counts[slot]]
        return returns.tolist(), lengths.astype(np.int64).tolist()
