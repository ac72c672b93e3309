"""Learning curves as a run's `metrics.jsonl` has them."""

from __future__ import annotations

import os
from pathlib import Path

from htsrl.errors import RunFolderError
from htsrl.metrics.sinks import read_json_lines
from htsrl.plain_files import parsed, read_plain
from htsrl.statistics.curve import Curve

RETURN = "rollout/ep_rew_mean"
EVALUATION = "eval/"
"""Metrics of evaluations beside training, which have a file of their own."""
TAIL_BYTES = 64 * 1024


def file_of(run_dir: Path, metric: str = RETURN) -> Path:
    """The file of a run that has a metric."""
    return run_dir / ("evaluations.jsonl" if metric.startswith(EVALUATION) else "metrics.jsonl")


def read_curve(metrics_file: Path, metric: str = RETURN) -> Curve:
    """The lines that have the metric, as (step, value, seconds); empty where there is none."""
    records = _evaluations(metrics_file) if metric.startswith(EVALUATION) else read_json_lines(metrics_file)
    points = [(x.get("step"), x.get(metric), x.get("time/time_elapsed") or 0.0) for x in records]
    return tuple((int(step), float(value), at) for step, value, at in points if step is not None and value is not None)


def value_at(metrics_file: Path, step: int, metric: str = RETURN) -> float | None:
    """Of the first line at or after a step; None where that line has none, such as before any episode has ended.

    A later line does not stand in for it: whether there is one already depends on when one looks.
    """
    line = next((x for x in read_json_lines(metrics_file) if (x.get("step") or 0) >= step), {})
    return line.get(metric)


def _evaluations(path: Path) -> list[dict[str, float | None]]:
    """The numbers of every evaluation, which has more than numbers, in the order of steps and the newest of each."""
    try:
        *lines, _unfinished = read_plain(path).split(b"\n")
        records = [dict(parsed(line)) for line in lines]
    except (OSError, ValueError, TypeError) as error:
        raise RunFolderError(f"{path} cannot be read: {error}") from error
    numbers = [{name: x for name, x in record.items() if isinstance(x, int | float)} for record in records]
    by_step = {record["step"]: record for record in numbers if "step" in record}
    return [dict(by_step[step]) for step in sorted(by_step)]


def last_step(metrics_file: Path) -> int:
    """How far a run has written, from the file's end alone; 0 where it has not begun."""
    try:
        with open(metrics_file, "rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - TAIL_BYTES, 0))
            lines = file.read(TAIL_BYTES).split(b"\n")[:-1]
        return int(parsed(lines[-1])["step"]) if lines else 0
    except (OSError, ValueError, TypeError, KeyError):
        return 0
