"""A run's timeline.json made fit to be shown: workers with their last spans, environments with stragglers marked."""

from __future__ import annotations

from typing import Any

from htsrl.dashboard.shown import number, text
from htsrl.metrics.stragglers import are_stragglers, times_median

MAX_WORKERS = 200
MAX_SPANS = 4_000
"""Of one worker, its latest."""
MAX_ENVIRONMENTS = 2_000
MAX_EVENTS = 500
MAX_BINS = 100


def timeline_view(document: Any, stall: Any = None) -> dict[str, Any]:
    """What of it is in the documented form; anything else is left out. With `stall`, what stall.json has, the call in
    which an environment still is."""
    document = document if isinstance(document, dict) else {}
    workers = [found for one in _listed(document, "workers", MAX_WORKERS) if (found := _worker(one))]
    listed = _listed(document, "environments", MAX_ENVIRONMENTS)
    environments = [found for one in listed if (found := _environment(one))]
    _mark_stragglers(environments)
    _add_open_span(workers, environments, document, stall if isinstance(stall, dict) else {})
    return {
        "written_at": number(document.get("written_at")),
        "workers": workers,
        "environments": environments,
        "events": [found for one in _listed(document, "events", MAX_EVENTS) if (found := _event(one))],
        "stragglers": [_described(one, environments) for one in environments if one["is_straggler"]],
    }


def _listed(document: dict[str, Any], name: str, limit: int) -> list[Any]:
    found = document.get(name)
    return found[-limit:] if isinstance(found, list) else []


def _worker(document: Any) -> dict[str, Any] | None:
    if not isinstance(document, dict) or (name := text(document.get("name"))) is None:
        return None
    totals = document.get("totals")
    known = {kind[:60]: number(value) for kind, value in totals.items()} if isinstance(totals, dict) else {}
    spans = [found for one in _listed(document, "spans", MAX_SPANS) if (found := _span(one))]
    return {
        "name": name,
        "pid": number(document.get("pid")),
        "totals": {kind: value for kind, value in known.items() if value is not None},
        "spans": spans,
    }


def _span(document: Any) -> list[Any] | None:
    """Kind, start, duration and what it was about."""
    if not isinstance(document, list) or len(document) < 3:
        return None
    kind, start, duration = text(document[0]), number(document[1]), number(document[2])
    if kind is None or start is None or duration is None or duration < 0:
        return None
    return [kind, start, duration, number(document[3]) if len(document) > 3 else None]


def _add_open_span(
    workers: list[dict[str, Any]], environments: list[dict[str, Any]], document: dict[str, Any], stall: dict[str, Any]
) -> None:
    """Spans are written once they have ended, so one that lasts is told of by stall.json alone."""
    began_at, written_at = number(document.get("started_at")), number(stall.get("written_at"))
    env, seconds = number(stall.get("env")), number(stall.get("call_seconds"))
    if began_at is None or written_at is None or env is None or seconds is None or seconds < 0:
        return
    name = next((one["worker"] for one in environments if one["env"] == env), None)
    kind = "step" if stall.get("call") == "step" else "reset"
    for worker in workers:
        if worker["name"] == name:
            worker["spans"].append([kind, written_at - seconds - began_at, seconds, env, "so far"])


def _environment(document: Any) -> dict[str, Any] | None:
    if not isinstance(document, dict) or (env := number(document.get("env"))) is None:
        return None
    steps, seconds = number(document.get("steps")), number(document.get("seconds"))
    with_resets = None if seconds is None else seconds + (number(document.get("reset_seconds")) or 0.0)
    bins = [
        [upper, count]
        for one in _listed(document, "histogram", MAX_BINS)
        if isinstance(one, list) and len(one) == 2
        if (upper := number(one[0])) is not None and (count := number(one[1])) is not None
    ]
    return {
        "env": int(env),
        "worker": None if document.get("worker") is None else str(document["worker"])[:100],
        "steps": steps,
        "mean_seconds": with_resets / steps if steps and with_resets is not None else None,
        "max_seconds": number(document.get("max_seconds")),
        "histogram": bins,
        "times_slowest": number(document.get("times_slowest")),
        "times_median": None,
        "is_straggler": False,
    }


def _event(document: Any) -> dict[str, Any] | None:
    if not isinstance(document, list) or len(document) < 2 or (kind := text(document[0])) is None:
        return None
    return {"kind": kind, "seconds": number(document[1]), "subject": text(document[2]) if len(document) > 2 else None}


def _mark_stragglers(environments: list[dict[str, Any]]) -> None:
    """Where one worker steps all of them in turn, none is waited for by the others, and none is marked."""
    are_beside = len({one["worker"] for one in environments}) > 1
    timed = [one for one in environments if one["mean_seconds"]]
    ratios = times_median([one["mean_seconds"] for one in timed])
    for one, ratio, is_straggler in zip(timed, ratios, are_stragglers(ratios), strict=True):
        one["times_median"] = ratio
        one["is_straggler"] = are_beside and is_straggler


def _described(one: dict[str, Any], environments: list[dict[str, Any]]) -> str:
    where = f" in {one['worker']}" if one["worker"] is not None else ""
    waited = f"; times that the others waited for it: {one['times_slowest']:,.0f}" if one["times_slowest"] else ""
    return (
        f"environment {one['env']}{where}: {one['mean_seconds'] * 1000:.3g} ms a step, {one['times_median']:.1f} times "
        f"the median of {len(environments)}{waited}"
    )
