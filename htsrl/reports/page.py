"""A report as one HTML file: no script, nothing from elsewhere, and whatever folders say in it is text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from htsrl.plain_files import printable
from htsrl.reports import charts
from htsrl.reports.gather import Gathered, ReportedRun, ReportedSweep
from htsrl.reports.style import STYLE
from htsrl.reports.summary import Cell, Summary
from htsrl.reports.words import final_words, over_seeds, seconds_words, value_words

MAX_TRIALS = 200
MAX_TIMELINES = 20
SHORT_CELL, LONG_CELL = 12, 40


def html_page(gathered: Gathered, summary: Summary | None, title: str) -> str:
    parts = [f"<h1>{_text(title)}</h1>", _opening(gathered, summary)]
    if summary is not None:
        parts += [_results(summary), _curves(summary), _aggregates(summary)]
    parts += [_timelines(gathered.runs), *map(_sweep, gathered.sweeps)]
    parts += [_reproduce(gathered.runs), _fingerprints(gathered.runs), _skipped(gathered.skipped)]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body>\n</html>\n"
    )


def _text(value: object) -> str:
    return escape(printable(str(value)))


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are HTML already."""
    head = "".join(f"<th>{_text(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(content: str) -> str:
    """As wide as it needs to be read: a number stays in one line, a command gets room."""
    kind = "short" if len(content) <= SHORT_CELL else "long" if len(content) >= LONG_CELL else "name"
    return f'<td class="{kind}">{content}</td>'


def _opening(gathered: Gathered, summary: Summary | None) -> str:
    if summary is None:
        return f"<p>{len(gathered.sweeps)} sweeps.</p>"
    unfinished = sum(not run.is_complete for run in gathered.runs)
    note = f" {unfinished} of them have not come to their end." if unfinished else ""
    return (
        f"<p>Runs: {len(gathered.runs)}, variants: {len(summary.variants)}, tasks: {len(summary.tasks)}.{note} Returns "
        "are the means of the last 100 training episodes; intervals hold the true mean in 95 of 100 repetitions.</p>"
    )


def _results(summary: Summary) -> str:
    columns = ["task", "variant", "seeds", "final return", "final at a time budget", "time to a target", "steps/s"]
    rows = [_result_row(cell) for cell in summary.cells]
    return (
        f"<section><h2>Results</h2>{_table(columns, rows)}"
        '<p class="note">Final: mean over the last tenth of training. Final at a budget: the same of what was trained '
        "within that time. Time to a target: until the mean return first reached it. Means over seeds; the interval of "
        "the final return is Student's t.</p></section>"
    )


def _result_row(cell: Cell) -> list[str]:
    speed = cell.steps_per_second
    return [
        _text(cell.task),
        _text(cell.variant),
        f"{len(cell.runs)}",
        final_words(cell),
        f"{over_seeds(cell.at_budget)} in {seconds_words(cell.budget_seconds)}",
        f"{over_seeds(cell.to_target, seconds_words)} to {cell.target:.4g}",
        "" if speed is None else f"{speed:,.0f}",
    ]


def _legend(summary: Summary) -> str:
    items = "".join(
        f'<li><svg viewBox="0 0 11 7" aria-hidden="true"><rect class="f{i % 8}" width="11" height="7" rx="1"/></svg>'
        f"{_text(variant)}</li>"
        for i, variant in enumerate(summary.variants)
    )
    return f'<ul class="legend">{items}</ul>'


def _curves(summary: Summary) -> str:
    parts = []
    for task in summary.tasks:
        cells = summary.cells_of(task)
        steps = charts.curves_chart(cells, summary.variants, charts.by_steps, "environment steps")
        minutes = charts.curves_chart(cells, summary.variants, charts.by_minutes, "minutes")
        parts.append(f'<h3>{_text(task)}</h3><div class="charts">{steps}{minutes}</div>')
    return (
        f"<section><h2>Learning curves</h2>{_legend(summary)}{''.join(parts)}"
        '<p class="note">Thin: each seed. Thick: their mean, where all of them have values. Shaded: 95 % interval of '
        "the mean, Student's t over seeds.</p></section>"
    )


def _aggregates(summary: Summary) -> str:
    rows = [
        [
            _text(x.variant),
            f"{x.num_runs}",
            f"{x.iqm:.4g}",
            f"{x.iqm_interval.low:.4g} to {x.iqm_interval.high:.4g}" if x.iqm_interval else "too few runs",
        ]
        for x in summary.aggregates
    ]
    scores = (
        "Scores are normalised task by task: 0 is the lowest, 1 the highest run there, unless a range was given."
        if summary.is_normalised
        else "Scores are final returns, as they are: there is one task."
    )
    return (
        "<section><h2>Over all tasks</h2>"
        f"{_table(['variant', 'runs', 'interquartile mean', '95 % interval'], rows)}{_legend(summary)}"
        f'<div class="charts">{charts.profile_chart(summary)}</div>'
        f'<p class="note">{scores} Interquartile mean: of the middle half of all scores. Profile: the share of runs '
        "that score above a value. Interval: Student's t over the runs of each task. Shaded: the same of each share, "
        "which has no width where all runs agree.</p></section>"
    )


def _timelines(runs: Sequence[ReportedRun]) -> str:
    timed = [run for run in runs if run.timeline]
    shown = timed[:MAX_TIMELINES]
    parts = [f"<h3>{_text(run.path)}</h3>{charts.timeline_chart(run.timeline)}" for run in shown]
    if not parts:
        return ""
    rest = f" The first {len(shown)} of {len(timed)} runs that have one." if len(timed) > len(shown) else ""
    return (
        f'<section><h2>Where the time went</h2><div class="charts">{"".join(f"<div>{part}</div>" for part in parts)}'
        f'</div><p class="note">Seconds by kind, over all workers of a run, from timeline.json.{rest}</p></section>'
    )


def _sweep(sweep: ReportedSweep) -> str:
    names = list(dict.fromkeys(str(name) for trial in sweep.trials for name in trial["settings"]))
    rows = [
        [
            _text(trial.get("number")),
            *(_text(value_words(trial["settings"].get(name, ""))) for name in names),
            _text("" if trial.get("value") is None else value_words(trial["value"])),
            _text(f"{trial.get('state')} {trial.get('reason', '')}"),
        ]
        for trial in sweep.trials[:MAX_TRIALS]
    ]
    slices = "".join(f"<div>{drawn}</div>" for name in names if (drawn := charts.slice_chart(sweep, name)))
    best = "" if sweep.best is None else f"<p>Best: trial {_text(sweep.best.get('number'))}.</p>"
    command = "" if sweep.command is None else f"<pre><code>{_text(sweep.command)}</code></pre>"
    left_out = len(sweep.trials) - len(rows)
    rest = f"The first {len(rows)} trials; sweep_result.json has {left_out} more." if left_out else ""
    importance = f"<h3>What mattered</h3>{charts.importance_chart(sweep)}" if sweep.importance else ""
    return (
        f"<section><h2>Sweep {_text(sweep.path.name)}</h2>{best}{command}{importance}"
        f'<h3>Trials by setting</h3><div class="charts">{slices}</div>'
        f'<p class="note">Hollow: pruned, with its value when it was given up.</p>'
        f"<h3>Trials</h3>{_table(['trial', *names, 'objective', 'state'], rows)}"
        f'<p class="note">{rest}</p></section>'
    )


def _reproduce(runs: Sequence[ReportedRun]) -> str:
    if not runs:
        return ""
    rows = [
        [
            _text(run.path),
            f"{run.seed}",
            f"{run.steps:,}{'' if run.is_complete else ', not its end'}",
            f"<code>{_text(run.digest)}</code>",
            f"<code>{_text(run.command)}</code>",
        ]
        for run in runs
    ]
    return (
        f"<section><h2>Runs</h2>{_table(['run', 'seed', 'steps', 'digest', 'command'], rows)}"
        '<p class="note">The command repeats the run; where the fingerprint is the same, to the same digest.</p>'
        "</section>"
    )


def _fingerprints(runs: Sequence[ReportedRun]) -> str:
    """Each once, with the runs that have it."""
    found: dict[str, list[ReportedRun]] = {}
    for run in runs:
        text = "\n".join(f"{name}: {value}" for name, value in run.fingerprint.items() if isinstance(value, str))
        packages = dict(run.fingerprint.get("packages") or {})
        found.setdefault("\n".join([text, *(f"{n}: {v}" for n, v in packages.items())]), []).append(run)
    parts = "".join(
        f"<h3>{len(own)} of {len(runs)} runs</h3><pre><code>{_text(text or 'unknown')}</code></pre>"
        for text, own in found.items()
    )
    return f"<section><h2>Fingerprints</h2>{parts}</section>" if runs else ""


def _skipped(skipped: Sequence[str]) -> str:
    if not skipped:
        return ""
    return f"<section><h2>Left out</h2><ul>{''.join(f'<li class=note>{_text(x)}</li>' for x in skipped)}</ul></section>"
