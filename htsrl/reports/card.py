"""The result card: what a pull request wants to know of runs, in Markdown."""

from __future__ import annotations

from htsrl.plain_files import printable
from htsrl.reports.gather import Gathered
from htsrl.reports.summary import Summary
from htsrl.reports.words import final_words, over_seeds, seconds_words
from htsrl.statistics.intervals import Interval

SPECIAL = "\\`*_{}[]<>()#+!|~&"


def markdown_card(gathered: Gathered, summary: Summary | None, title: str) -> str:
    lines = [f"### {_text(title)}", ""]
    if summary is not None:
        lines += _results(summary)
    for sweep in gathered.sweeps:
        best = "none" if sweep.best is None else f"trial {_text(sweep.best.get('number'))}"
        lines += [f"Sweep {_text(sweep.path.name)}: {len(sweep.trials)} trials, best {best}.", ""]
        lines += [f"    {printable(sweep.command)}", ""] if sweep.command else []
    if gathered.runs:
        lines += ["<details><summary>Commands and digests</summary>", ""]
        lines += ["| seed | digest | command |", "| --- | --- | --- |"]
        lines += [f"| {run.seed} | {_text(run.digest)} | {_code(run.command)} |" for run in gathered.runs]
        lines += ["", "</details>", ""]
    return "\n".join(lines)


def _results(summary: Summary) -> list[str]:
    lines = [
        "| task | variant | seeds | final return (95 %) | at a budget | to a target | steps/s |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for cell in summary.cells:
        speed = cell.steps_per_second
        lines.append(
            f"| {_text(cell.task)} | {_text(cell.variant)} | {len(cell.runs)} | {final_words(cell)} | "
            f"{over_seeds(cell.at_budget)} in {seconds_words(cell.budget_seconds)} | "
            f"{over_seeds(cell.to_target, seconds_words)} to {cell.target:.4g} | "
            f"{'' if speed is None else f'{speed:,.0f}'} |"
        )
    lines.append("")
    if len(summary.tasks) > 1:
        lines += ["| variant | interquartile mean (95 %) |", "| --- | --- |"]
        lines += [
            f"| {_text(x.variant)} | {x.iqm:.3g} ({_interval_words(x.iqm_interval)}) |" for x in summary.aggregates
        ]
        lines.append("")
    return lines


def _interval_words(interval: Interval | None) -> str:
    return f"{interval.low:.3g} to {interval.high:.3g}" if interval else "too few runs for an interval"


def _text(value: object) -> str:
    """Whatever a folder says, as text of a table's cell."""
    line = " ".join(printable(str(value)).split())
    return "".join(f"\\{x}" if x in SPECIAL else x for x in line)


def _code(text: str) -> str:
    line = " ".join(printable(text).split()).replace("`", "'").replace("|", "\\|")
    return f"`{line}`"
