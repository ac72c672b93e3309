"""What a run of `htsrl bench learning` leaves behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from htsrl.errors import HtsrlError
from htsrl.metrics import returns
from htsrl.runs.folder import RunFolder
from htsrl.statistics.curve import Curve, mean_over

MAX_POINTS = 150
"""Of a curve in a record: a picture shows no more."""


@dataclass(frozen=True)
class Learned:
    """One run and what its policy is worth."""

    way: str
    seed: int
    score: float
    """Mean return of the evaluation."""
    score_deviation: float
    digest: str
    steps: int
    steps_per_second: float
    command: str
    commit: str | None
    mean_over_run: float
    """Of the whole curve, of which a record has fewer points."""
    curve: Curve
    code: str | None = None
    """Hash of the sources of htsrl that can change bits; None where nobody knows."""

    @property
    def origin(self) -> list[str]:
        """Digest, commit and code, as tables show them."""
        return [f"`{self.digest}`", self.commit or "unknown", self.code or "unknown"]

    def document(self, max_points: int = MAX_POINTS) -> dict[str, Any]:
        return {**asdict(self), "curve": thinned(self.curve, max_points)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Learned:
        """Of a record, or of a file among finished runs, which has all points where it lacks their mean."""
        curve = tuple((step, mean, at) for step, mean, at in document["curve"])
        return cls(**{"mean_over_run": mean_over(curve), **document, "curve": curve})


def thinned(curve: Curve, max_points: int = MAX_POINTS) -> Curve:
    """At most so many points and the last, in as many digits as can be seen."""
    stride = -(-len(curve) // max_points)
    return tuple((step, float(f"{mean:.5g}"), round(at, 1)) for step, mean, at in (*curve[:-1:stride], curve[-1]))


def read_curve(run_dir: Path) -> Curve:
    curve = returns.read_curve(RunFolder(run_dir).metrics_file)
    if not curve:
        raise HtsrlError("no episode ended during the run, so there is no learning curve; give the task more steps")
    return curve
