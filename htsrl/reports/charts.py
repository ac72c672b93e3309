"""The charts of a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from htsrl.reports.gather import ReportedRun, ReportedSweep
from htsrl.reports.summary import Cell, Summary
from htsrl.reports.svg import Chart, bars, padded, short_number
from htsrl.statistics.aggregates import Floats
from htsrl.statistics.band import Band, band_over
from htsrl.statistics.curve import Curve

MAX_POINTS = 400
"""Of a thin line: a picture shows no more."""
Axis = Callable[[Curve], tuple[Floats, Floats]]


def by_steps(curve: Curve) -> tuple[Floats, Floats]:
    steps, values, _ = np.asarray(curve, dtype=np.float64).T
    return steps, values


def by_minutes(curve: Curve) -> tuple[Floats, Floats]:
    _, values, seconds = np.asarray(curve, dtype=np.float64).T
    return seconds / 60, values


def band_of(runs: Sequence[ReportedRun], axis: Axis) -> Band | None:
    return band_over([axis(run.curve) for run in runs])


def curves_chart(cells: Sequence[Cell], variants: Sequence[str], axis: Axis, x_label: str) -> str:
    """A thin line per seed, a thick one for their mean, and the interval of Student's t around it."""
    curves = {cell.variant: [thinned(*axis(run.curve)) for run in cell.runs] for cell in cells}
    bands = {cell.variant: band_of(cell.runs, axis) for cell in cells}
    drawn = [y for own in curves.values() for points in own for _, y in points]
    seen = [y for band in bands.values() if band for y in (*band.low, *band.high)]
    low, high = min(drawn), max(drawn)
    room = (high - low) or 1.0
    # An interval over two seeds may be far wider than all curves; it is cut rather than the curves made flat.
    inside = [y for y in seen if low - room < y < high + room]
    chart = Chart(
        x_label,
        "mean return",
        (0.0, max(x for own in curves.values() for points in own for x, _ in points) or 1.0),
        padded([*drawn, *inside]),
        f"learning curves over {x_label}",
    )
    for variant, band in bands.items():
        if band is not None and band.num_curves > 1:
            low_y, high_y = (np.clip(ys, *chart.y_range) for ys in (band.low, band.high))
            chart.band(_points(band.places, low_y), _points(band.places, high_y), variants.index(variant))
    for variant, own in curves.items():
        for points in own:
            chart.line(points, variants.index(variant), thin=True)
    for variant, band in bands.items():
        if band is not None:
            chart.line(_points(band.places, band.mean), variants.index(variant))
    return chart.svg()


def profile_chart(summary: Summary) -> str:
    """The share of runs above each score, and how far runs disagree around it."""
    label = "normalised score" if summary.is_normalised else "final return"
    chart = Chart(
        f"{label} above which ...",
        "share of runs",
        (summary.thresholds[0], summary.thresholds[-1]),
        (0.0, 1.02),
        "performance profiles",
    )
    for i, aggregate in enumerate(summary.aggregates):
        low = list(zip(summary.thresholds, aggregate.profile_low, strict=True))
        chart.band(low, list(zip(summary.thresholds, aggregate.profile_high, strict=True)), i)
    for i, aggregate in enumerate(summary.aggregates):
        chart.line(list(zip(summary.thresholds, aggregate.profile, strict=True)), i)
    return chart.svg()


def slice_chart(sweep: ReportedSweep, name: str) -> str | None:
    """What came of every value of a setting; None where no trial has a number."""
    points = [
        (trial["settings"].get(name), float(trial["value"]), trial) for trial in sweep.trials if _has_value(trial)
    ]
    if not points:
        return None
    values = [value for value, _, _ in points]
    are_numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in values)
    words = list(dict.fromkeys(map(str, values)))
    places = [float(x) for x in values] if are_numbers else [float(words.index(str(x))) for x in values]
    is_log = are_numbers and min(places) > 0 and max(places) > 50 * min(places)
    x_range = (min(places) / 1.2, max(places) * 1.2) if is_log else padded(places, 0.08)
    ticks = None if are_numbers else [(float(i), word[:24]) for i, word in enumerate(words)]
    y_range = padded([value for _, value, _ in points])
    chart = Chart(name, "objective", x_range, y_range, f"trials by {name}", ticks, is_log)
    for place, (value, objective, trial) in zip(places, points, strict=True):
        hint = f"trial {trial.get('number')}: {value}, {short_number(objective)}, {trial.get('state')}"
        chart.dot((place, objective), 0, hint, hollow=trial.get("state") != "complete")
    return chart.svg()


def importance_chart(sweep: ReportedSweep) -> str:
    return bars([(name, share, f"{share:.0%}") for name, share in sweep.importance.items()], "importance of settings")


def timeline_chart(totals: Mapping[str, float]) -> str:
    whole = sum(totals.values()) or 1.0
    ordered = sorted(totals.items(), key=lambda item: -item[1])
    return bars([(kind, s / whole, f"{s:,.1f} s, {s / whole:.0%}") for kind, s in ordered], "where the time went")


def thinned(places: Floats, values: Floats) -> list[tuple[float, float]]:
    stride = -(-len(places) // MAX_POINTS)
    points = _points(places, values)
    return [*points[:-1:stride], points[-1]]


def _points(places: Floats, values: Floats) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in zip(places, values, strict=True)]


def _has_value(trial: Mapping[str, Any]) -> bool:
    value = trial.get("value")
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
