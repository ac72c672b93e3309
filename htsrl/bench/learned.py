"""What a run of `htsrl bench learning` leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from htsrl.errors import HtsrlError
from htsrl.metrics.sinks import read_json_lines
from htsrl.run_folder import RunFolder

Curve = tuple[tuple[int, float, float], ...]
"""(step, mean return of the last 100 training episodes, seconds since the start)."""


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
    curve: Curve

    @property
    def mean_over_run(self) -> float:
        """The area under the learning curve, over its length: early learners score higher."""
        steps, returns, _ = np.asarray(self.curve, dtype=np.float64).T
        return float(np.trapezoid(returns, steps) / (steps[-1] - steps[0])) if len(steps) > 1 else float(returns[0])


def read_curve(run_dir: Path) -> Curve:
    records = read_json_lines(RunFolder(run_dir).metrics_file)
    points = [(x["step"], x.get("rollout/ep_rew_mean"), x.get("time/time_elapsed") or 0.0) for x in records]
    curve = tuple((int(step), mean, at) for step, mean, at in points if step is not None and mean is not None)
    if not curve:
        raise HtsrlError("no episode ended during the run, so there is no learning curve; give the task more steps")
    return curve
