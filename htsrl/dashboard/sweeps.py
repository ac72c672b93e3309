"""A sweep as the page shows it: every trial by setting as it ends and, in the end, how much each setting mattered."""

from __future__ import annotations

from typing import Any

from htsrl.dashboard.run_files import RunFiles
from htsrl.dashboard.shown import number, text
from htsrl.plain_files import parsed

ANALYSIS = "analysis.json"
SWEEP = "sweep.json"
JOURNAL = "trials.jsonl"
MAX_SWEEPS = 50
MAX_SETTINGS = 40
MAX_TRIALS = 1_000


def sweep_name(files: RunFiles) -> str:
    return "/".join(files.parts) or files.root.name


def stamp_text(files: RunFiles) -> str:
    """Changes whenever the analysis does, or another trial has ended."""
    return f"{files.stamp(ANALYSIS)} {files.stamp(JOURNAL)}"


def sweep_view(files: RunFiles) -> dict[str, Any] | None:
    """None where there is nothing of it to read; what is not as it should be is left out."""
    if (under_way := _under_way(files)) is not None:
        return under_way
    document = _document(files, ANALYSIS)
    if document is None:
        return None
    importance, slices = document.get("importance"), document.get("slices")
    return {
        "name": sweep_name(files),
        "under_way": None,
        "importance": _importance(importance if isinstance(importance, dict) else {}),
        "slices": _slices(slices if isinstance(slices, dict) else {}),
    }


def _under_way(files: RunFiles) -> dict[str, Any] | None:
    """Of one whose journal continues after its analysis, or that has none yet."""
    analysed, journal = files.stamp(ANALYSIS), files.stamp(JOURNAL)
    specification = _document(files, SWEEP)
    if specification is None or (analysed and (journal is None or journal.modified_ns <= analysed.modified_ns)):
        return None
    search = specification.get("sweep")
    num_trials = number(search.get("trials")) if isinstance(search, dict) else None
    trials, slices = _journal(files), dict[str, list[dict[str, Any]]]()
    for trial in trials:
        settings = trial.get("settings")
        for name, value in settings.items() if isinstance(settings, dict) else ():
            point = {"trial": trial.get("number"), "value": value, "objective": trial.get("value")}
            slices.setdefault(name, []).append({**point, "state": trial.get("state")})
    of_all = f" of {num_trials:,.0f}" if num_trials is not None else ""
    return {
        "name": sweep_name(files),
        "under_way": f"{len(trials):,}{of_all} trials have ended.",
        "importance": [],
        "slices": _slices(slices),
    }


def _journal(files: RunFiles) -> list[dict[str, Any]]:
    """Trials that have ended, as they did."""
    try:
        lines = files.read(JOURNAL).split(b"\n")[:-1]
    except OSError:
        return []
    found = []
    for line in lines[:MAX_TRIALS]:
        try:
            document = parsed(line)
        except ValueError:
            continue
        if isinstance(document, dict):
            found.append(document)
    return found


def _document(files: RunFiles, name: str) -> dict[str, Any] | None:
    try:
        document = files.document(name)
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


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
