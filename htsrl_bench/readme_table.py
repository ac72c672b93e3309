"""The README's table: six results, each with all the records that it is about, those that disappoint too."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from htsrl_bench.highlights import difference, of_cpu_time
from htsrl_bench.report import Published

FOLDER = "benchmarks"
"""Where the records are, seen from the README."""


def readme_table(records: Sequence[Published]) -> str:
    """A row for each kind of result that there are records of."""
    lines = ["| measured | result |", "| --- | --- |"]
    for kind, (what, cell) in RESULTS.items():
        if own := [record for record in records if record.name.startswith(kind)]:
            cells = (
                f"[{record.name.removeprefix(kind) or kind}]({FOLDER}/{record.name}.md) {cell(record)}"
                for record in own
            )
            lines.append(f"| {what} | {'; '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _peers(record: Published) -> str:
    (of,) = record.summary["work"].values()
    if record.summary.get("busy"):
        return of_cpu_time(of)
    if of["fastest"] is None:
        return "no peer ran"
    ratio = of["ratio"]
    return f"{ratio['median']:.2f}x ({ratio['lowest']:.2f} to {ratio['highest']:.2f}, {of['fastest']})"


def _throughput(record: Published) -> str:
    (of,) = record.summary["works"].values()
    shares = {name: f"{own['share_of_roofline']['median']:.0%}" for name, own in of["schedules"].items()}
    return f"{shares['hts']} ({shares['sync']})"


def _headline(record: Published) -> str:
    ratio = record.summary["headline"]["ratio"]
    return f"{ratio['median']:.2f}x ({ratio['lowest']:.2f} to {ratio['highest']:.2f})"


def _determinism(record: Published) -> str:
    (of,) = record.summary["works"].values()
    low, high = of["cost_range"]
    return f"{of['cost']:.1%} ({low:.1%} to {high:.1%})"


def _learning(record: Published) -> str:
    seeds = record.summary["num_seeds"]
    return f"{difference(record.summary['over_run'], 'sync').removeprefix('sync ')}, {seeds} seed{'s'[: seeds > 1]}"


def _chaos(record: Published) -> str:
    kills = sum(record.summary["kills"].values())
    return f"{kills} kills, {'equal to the bit' if record.summary['equal'] else 'not equal'}"


RESULTS: dict[str, tuple[str, Callable[[Published], str]]] = {
    "peers-": ("steps/s over those of the fastest [peer](docs/peers.md), median (lowest to highest)", _peers),
    "throughput-": ("share of the [roofline](docs/benchmarks.md#the-limit), hts (sync), medians", _throughput),
    "variance-headline": (
        "32 environments that sleep: steps/s of hts over those with a barrier at every step, median (lowest to "
        "highest)",
        _headline,
    ),
    "determinism-": ("what reproducibility costs, median (lowest to highest); below 0 is noise", _determinism),
    "learning-": (
        "mean return over the run, hts less sync, with the 95 % interval over paired seeds",
        _learning,
    ),
    "chaos-": ("processes killed at random in a run, against the run undisturbed", _chaos),
}
"""By how names of records begin: what is measured, and what a record has to say about it."""
