"""Learning curves as a run's `metrics.jsonl` has them."""

from __future__ import annotations

import os
from pathlib import Path

from htsrl.metrics.sinks import read_json_lines
from htsrl.plain_files import parsed
from htsrl.statistics.curve import Curve

RETURN = "rollout/ep_rew_mean"
TAIL_BYTES = 64 * 1024


def read_curve(metrics_file: Path, metric: str = RETURN) -> Curve:
    """The lines that have the metric, as (step, value, seconds); empty where there is none."""
    records = read_json_lines(metrics_file)
    points = [(x.get("step"), x.get(metric), x.get("time/time_elapsed") or 0.0) for x in records]
    return tuple((int(step), float(value), at) for step, value, at in points if step is not None and value is not None)


def last_step(metrics_file: Path) -> int:
    """How far a run has written, from the file's end alone; 0 where it has not begun."""
    try:
        with open(metrics_file, "rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - TAIL_BYTES, 0))
            lines = file.read(TAIL_BYTES).split(b"\n")[:-1]
        return int(parsed(lines[-1])["step"]) if lines else 0
    except (OSError, ValueError, TypeError, KeyError):
        return 0
