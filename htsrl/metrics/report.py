"""What the learner tells the supervisor after every update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from htsrl.digest import Link

EndedEpisode = tuple[int, float, int, Mapping[str, float]]
"""Environment, return, length, and the logged numbers of the last step's info."""


@dataclass(frozen=True)
class UpdateReport:
    """One barrier: where training stands."""

    version: int
    steps: int
    metrics: Mapping[str, float]
    link: Link
    finished: bool
    provenance: str | None = None
    """What the update learned from, as a line for the run's folder, where that cannot be worked out."""
    episodes: Sequence[EndedEpisode] = ()
    """The episodes that ended in the batch, where somebody wants to hear of them."""
