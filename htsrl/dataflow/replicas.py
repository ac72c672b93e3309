"""Replicas of the learner in shared memory: their words, and what a meeting of theirs is made from and comes to.

Every replica turns its version u into a draft of version u+1, in its own ring, and then writes u+1 into its word of
`drafted`. Replica 0 waits for all of them, asks the sync rule, and where that says so computes from the drafts what
each replica continues from, into `merged/...`; then it writes u+1 into `merged_version`, copies the results over the
drafts, and publishes version u+1 of all replicas at once.

**Drafts stay as they are from `drafted` until `merged_version`, and results from there until the version is
published.** So whatever was begun can be done once more:

- A replica killed before its word: its successor begins the update anew, from version u, which nobody has touched.
  Killed after it: its successor finds its word at u+1, and waits for the version.
- Replica 0 killed before `merged_version`, whatever it has written of the results: its successor makes its own draft
  again, finds the others', and computes the same. Killed after it, some drafts are overwritten, but the results are
  whole: its successor makes its draft again for what it reports, and copies the results over all of them.

Replica 0's arrays are named as those of a run with one learner; those of replica r have `replica r/` before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.dataflow.exchange import Words
from htsrl.dataflow.shared_arrays import ArraySpec, SharedArrays
from htsrl.dataflow.versions import slot_of
from htsrl.processes.kill_points import kill_point

NUM_REPORTED = 2
"""Numbers that a replica reports of an update."""
ROUNDS, BYTES, NUM_COUNTERS = 0, 1, 2
"""Before the rule's state: meetings so far, and the bytes that they sent."""
MERGED = "merged/"
SUM_OF_SHARDS = ("shard_gradients", "shard_losses")
"""What a learner without gradient workers needs of the arrays of gradients."""


def replica_prefix(replica: int) -> str:
    return f"replica {replica}/" if replica else ""


def owner_of(name: str) -> str:
    """The prefix of the replica whose array has this name."""
    return name[: name.index("/") + 1] if name.startswith("replica ") else ""


def replica_arrays(
    num_replicas: int,
    rings: Sequence[ArraySpec],
    gradients: Sequence[ArraySpec],
    num_slots: int,
    state_size: int,
) -> list[ArraySpec]:
    """What several replicas need beside the arrays of the first, by writer; `rings` and `gradients` are hers."""
    if num_replicas == 1:
        return []
    own = [*rings, *(spec for spec in gradients if spec.name in SUM_OF_SHARDS)]
    others = [
        replace(spec, name=replica_prefix(replica) + spec.name) for replica in range(1, num_replicas) for spec in own
    ]
    merged = [ArraySpec(MERGED + spec.name, (num_replicas, *spec.shape[1:]), spec.dtype) for spec in rings]
    return [
        *others,  # each replica its own, and replica 0 at a meeting
        ArraySpec("drafted", (num_replicas,), "int64"),  # each replica its own
        ArraySpec("replica_reports", (num_replicas, NUM_REPORTED), "float64"),  # each replica its own
        *merged,  # replica 0
        ArraySpec("merged_version", (1,), "int64"),  # replica 0
        ArraySpec("sync_states", (num_slots, NUM_COUNTERS + state_size), "float64", kept_by="version"),  # replica 0
    ]


class ReplicaWords:
    """The words between replicas."""

    def __init__(self, block: SharedArrays) -> None:
        self._drafted: Words = block["drafted"]
        self._reports: NDArray[np.float64] = block["replica_reports"]
        self._merged_version: Words = block["merged_version"]
        self._states: NDArray[np.float64] = block["sync_states"]

    def note_draft(self, replica: int, version: int, report: Sequence[float]) -> None:
        """Of a replica that has done with its draft."""
        self._reports[replica] = report
        kill_point("before a draft counts")
        self._drafted[replica] = version
        kill_point("after a draft counts")

    def has_drafted(self, replica: int, version: int) -> bool:
        return bool(self._drafted[replica] == version)

    def late(self, version: int) -> list[int]:
        """The replicas, beside the first, that have not made their draft yet."""
        late: list[int] = (np.flatnonzero(self._drafted[1:] != version) + 1).tolist()
        return late

    def reports(self) -> list[list[float]]:
        reports: list[list[float]] = self._reports.tolist()
        return reports

    def is_merged(self, version: int) -> bool:
        return bool(self._merged_version[0] == version)

    def note_merged(self, version: int) -> None:
        kill_point("before a merge counts")
        self._merged_version[0] = version
        kill_point("after a merge counts")

    def state(self, version: int) -> NDArray[Any]:
        """Counters and the rule's state as of a version."""
        state: NDArray[Any] = self._states[slot_of(version, len(self._states))]
        return state
