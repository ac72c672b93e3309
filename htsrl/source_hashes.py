"""Which code of htsrl a run was computed by: a hash of every part of the package that can change a result's bits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import xxhash

CANNOT_CHANGE_BITS = (
    "__init__.py",
    "__main__.py",
    "checkpoint/snapshots.py",
    "cli",
    "config/command_line.py",
    "dashboard",
    "datasets/random_policy.py",
    "envs/check",
    "envs/looked_at.py",
    "envs/rendering.py",
    "envs/repeats.py",
    "evaluate.py",
    "export",
    "extending.py",
    "metrics/csv_file.py",
    "metrics/atomic_file.py",
    "metrics/curve.py",
    "metrics/episode_progress.py",
    "metrics/evaluation.py",
    "metrics/gauges.py",
    "metrics/guarded_sinks.py",
    "metrics/histograms.py",
    "metrics/line_file.py",
    "metrics/live.py",
    "metrics/line_progress.py",
    "metrics/names.py",
    "metrics/pace.py",
    "metrics/progress.py",
    "metrics/readings.py",
    "metrics/returns.py",
    "metrics/sinks.py",
    "metrics/trackers.py",
    "observers",
    "placements/instruments.py",
    "planning",
    "processes/interrupts.py",
    "processes/liveness.py",
    "processes/parent_death.py",
    "processes/process_name.py",
    "processes/warnings_once.py",
    "replay",
    "runs/beside_training.py",
    "reports",
    "runs/collect.py",
    "runs/comparison.py",
    "runs/evaluations.py",
    "runs/evaluator.py",
    "runs/evaluator_process.py",
    "runs/filming.py",
    "runs/side_process.py",
    "runs/load_policy.py",
    "runs/lock.py",
    "runs/open_sinks.py",
    "runs/play.py",
    "runs/recorder.py",
    "runs/reproducer.py",
    "runs/signatures.py",
    "runs/trust.py",
    "stderr.py",
    "timeline",
    "video",
    "statistics",
    "sweeps",
)
"""Files and folders of the package that only ask, show, write or look on; all others count."""
PRESETS = ("preset.py", "presets.py", "shared_presets.py")
"""Wherever they are, and whichever algorithm's: what they decide about an experiment is among its settings."""


def code_hashes(package: Path = Path(__file__).parent) -> dict[str, str]:
    """A hash by top-level module or package; comments count, for parsing all sources would take half a second."""
    hashers: dict[str, xxhash.xxh3_64] = {}
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package)
        if not is_left_out(place):
            hasher = hashers.setdefault(place.parts[0].removesuffix(".py"), xxhash.xxh3_64())
            hasher.update(f"{place.as_posix()}\0".encode())
            hasher.update(source_hash(path).encode())
    return {part: hasher.hexdigest() for part, hasher in sorted(hashers.items())}


def in_one(hashes: Mapping[str, str]) -> str:
    """A single hash of all of them, as `resume`, `compare` and records show it."""
    return xxhash.xxh3_64_hexdigest(repr(sorted(hashes.items())).encode())


def source_hash(path: Path) -> str:
    """Of a file's content, whatever ends its lines."""
    return xxhash.xxh3_64_hexdigest(path.read_bytes().replace(b"\r\n", b"\n"))


def is_left_out(place: Path) -> bool:
    """Whether the file at this place in the package counts for no hash."""
    return place.name in PRESETS or any(part.as_posix() in CANNOT_CHANGE_BITS for part in (place, *place.parents))
