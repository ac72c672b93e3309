"""A batch source: what an update learns from, and when it may begin.

What a source holds lies in shared memory, in arrays that its schedule declares (`Schedule.arrays`); the declaration
says which of them checkpoints keep. So a source has no state of its own, and everybody who builds one sees the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from htsrl.dataflow.exchange import Words
from htsrl.sources.provenance import BatchProvenance

Fields = Mapping[str, NDArray[Any]]


class BatchSource(Protocol):
    """Gives the learner its batches, and executors room for rollouts."""

    @property
    def max_updates(self) -> int:
        """How many there can be, if the experiment asks for as many."""

    def has_room(self, env: int, rollout: int) -> bool:
        """Whether an environment may begin with a rollout, as far as its storage goes."""

    def put(self, env: int, rollout: int) -> None:
        """A rollout is complete, and will count in a moment; for its executor alone."""

    def is_ready(self, update: int) -> bool:
        """Whether there is enough to learn from."""

    def claim(self, update: int) -> None:
        """Hold on to what the update learns from; for the learner alone."""

    def fields(self, update: int) -> Fields:
        """The fields `[T, B, ...]` of a batch that was claimed, which nobody writes to until it is released."""

    def check_versions(self, update: int, fields: Fields) -> None:
        """Assert that the batch was made by versions that may have made it."""

    def behaviour_version(self, update: int) -> int | None:
        """The version that made the batch; None where there is no such one."""

    def provenance(self, update: int, fields: Fields) -> BatchProvenance | None:
        """What nobody could work out from the update's number."""

    def release(self, update: int) -> None:
        """The version after the update no longer needs the batch; takes effect when that is published."""

    def released(self, version: int) -> Words:
        """How many rollouts of each environment were learned from when `version` was made."""

    def completed_at_barrier(self, update: int) -> Words | None:
        """How many rollouts of each environment are complete, and stay as they are, from when the update is ready
        until its version is published; None where nobody waits for the learner, and each stands where it stands."""

    def describe(self, update: int) -> str:
        """Where the batch comes from, for error messages."""

    def waits_for(self, update: int) -> str:
        """What is missing, for error messages."""


def lag_metrics(update: int, fields: Fields) -> dict[str, float]:
    """How many versions the batch is behind the parameters that the update moves: on average, and at most."""
    lags = update - fields["versions"]
    if not lags.size:  # nobody acts
        return {}
    return {"hts/lag": float(lags.mean()), "hts/lag_max": float(np.max(lags))}
