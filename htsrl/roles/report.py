"""What the learner tells the supervisor after every update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from htsrl.digest import Link


@dataclass(frozen=True)
class UpdateReport:
    """One barrier: where training stands."""

    version: int
    steps: int
    metrics: Mapping[str, float]
    link: Link
    finished: bool
    feeding: str | None = None
    """What the update learned from, as a line for the run's folder, where that cannot be worked out."""
