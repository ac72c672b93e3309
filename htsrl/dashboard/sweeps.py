"""A sweep that has ended, as the page shows it: how much each setting mattered, and every trial by setting."""

from __future__ import annotations

from typing import Any

from htsrl.dashboard.run_files import RunFiles
from htsrl.dashboard.shown import number, text

ANALYSIS = "analysis.json"
MAX_SWEEPS = 50
MAX_SETTINGS = 40
MAX_TRIALS = 1_000


def sweep_name(files: RunFiles) -> str:
    return "/".join(files.parts) or files.root.name


def stamp_text(files: RunFiles) -> str:
    """Changes whenever the analysis does."""
    return str(files.stamp(ANALYSIS))


def sweep_view(files: RunFiles) -> dict[str, Any] | None:
    """None where there is nothing of it to read; what is not as it should be is left out."""
    try:
        document = files.document(ANALYSIS)
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict):
        return None
    importance, slices = document.get("importance"), document.get("slices")
    return {
        "name": sweep_name(files),
        "importance": _importance(importance if isinstance(importance, dict) else {}),
        "slices": _slices(slices if isinstance(slices, dict) else {}),
    }


def _importance(shares: dict[Any, Any]) -> list[list[Any]]:
    """Settings with their shares, the most important first."""
    known = [(share, text(name)) for name, value in shares.items() if (share := number(value)) is not None]
    return [[name, share] for share, name in sorted(known, key=lambda pair: -pair[0])[:MAX_SETTINGS]]


def _slices(slices: dict[Any, Any]) -> list[dict[str, Any]]:
    """For every setting its values, as text or numbers, with the objective and the state of the trial."""
    shown = []
    for name, points in list(slices.items())[:MAX_SETTINGS]:
        known = [_point(point) for point in (points if isinstance(points, list) else [])[:MAX_TRIALS]]
        shown.append({"setting": text(name), "trials": [point for point in known if point is not None]})
    return shown


def _point(point: Any) -> list[Any] | None:
    """Trial, value, objective and state; None for one without an objective."""
    if not isinstance(point, dict) or (objective := number(point.get("objective"))) is None:
        return None
    value = point.get("value")
    shown = number(value) if number(value) is not None else text(str(value))
    return [number(point.get("trial")), shown, objective, text(point.get("state"))]
