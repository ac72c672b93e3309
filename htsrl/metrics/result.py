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
    interrupted: bool = False
    """Ended before its time, by Ctrl-C, a signal or an error."""
    goal_reached: bool = False
    """Ended before its total_steps because the mean return had reached stop_at_return."""
    env_errors: int = 0
    """Episodes that an exception in their environment cut short, with on_env_error="truncate"."""
    restarts: int = 0
    """How often a worker died and was started again, since the run was last started or resumed."""
    stop_reason: str | None = None
    """Why an observer asked it to end, if one did."""
    numerics_changes: int = 0
    """How often it was resumed by another machine, library or code; above 0, its digest is nobody else's."""

    def summary(self) -> dict[str, Any]:
        return {**asdict(self), "run_dir": str(self.run_dir)}
