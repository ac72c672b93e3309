"""How a run ended, as `htsrl.train` returns it and `result.json` has it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class RunResult:
    """How a run ended."""

    run_dir: Path
    steps: int
    updates: int
    digest: str
    mean_return: float | None
    """Of the last hundred episodes; None where none has ended."""
    steps_per_second: float
    seconds: float
    """Until the last update, with the start of its processes."""
    interrupted: bool = False
    """Ended before its time, by Ctrl-C, a signal or an error."""
    goal_reached: bool = False
    """Ended before its total_steps because the mean return had reached stop_at_return."""
    env_errors: int = 0
    """Episodes that an exception in their environment cut short, with on_env_error="truncate" or "exclude"."""
    restarts: int = 0
    """How often a worker died and was started again, since the run was last started or resumed."""
    stop_reason: str | None = None
    """Why an observer asked it to end, if one did, or which evaluations did."""
    starting_seconds: float = 0.0
    """Until the first update since it was last started or resumed; `steps_per_second` leaves it out."""
    numerics_changes: int = 0
    """How often it was resumed by another machine, library or code; above 0, its digest is nobody else's."""

    sink_failures: int = 0
    """How often a sink beside metrics.jsonl failed, since the run was last started."""
    evaluations: int = 0
    """How many were made beside training."""
    evaluations_skipped: int = 0
    """Versions that were due when two others were still being evaluated or waiting, since the run was last started."""
    evaluations_failed: int = 0
    """Versions that could not be evaluated, since the run was last started."""
    eval_return: float | None = None
    """Mean return of the newest version that was evaluated."""
    best_eval_return: float | None = None
    """That of the version in `best_policy.safetensors`."""
    best_eval_version: int | None = None
    eval_goal_reached: bool = False
    """Ended before its total_steps because evaluations held stop_at_eval_return."""

    def summary(self) -> dict[str, Any]:
        return {**asdict(self), "run_dir": str(self.run_dir)}
