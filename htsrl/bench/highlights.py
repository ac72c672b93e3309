"""What a record comes down to: a line or a few for a table of results, read from its summary."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Highlight = tuple[str, str]
"""What was measured, and what came of it."""
Summary = Mapping[str, Any]


def highlights_of(name: str, summary: Summary) -> list[Highlight]:
    """None for records that are there to look things up in."""
    kind = next((kind for kind in sorted(KINDS, key=len, reverse=True) if name.startswith(kind)), None)
    return [] if kind is None else list(KINDS[kind](name.removeprefix(kind).removeprefix("-"), summary))


def _throughput(_: str, summary: Summary) -> Iterator[Highlight]:
    for work, of in summary["works"].items():
        schedules = ", ".join(_speed_and_share(name, own) for name, own in of["schedules"].items())
        yield f"{work}: steps/s, and share of the roofline", schedules


def _speed_and_share(name: str, own: Summary) -> str:
    return f"{name} {own['steps_per_second']['median']:,.0f} ({own['share_of_roofline']['median']:.0%})"


def _soak(_: str, summary: Summary) -> Iterator[Highlight]:
    for run, of in summary.items():
        growth = f"{of['growth_megabytes_in_10_minutes']:+.1f} MB"
        yield f"{run}: growth of memory in 10 minutes", f"{growth}, at {of['last_megabytes']:,.0f} MB"


def _limits(_: str, summary: Summary) -> Iterator[Highlight]:
    rooflines = [f"{work} {of['roofline']['median']:,.0f}" for work, of in summary["works"].items()]
    yield "rooflines, steps/s", ", ".join(rooflines)


def _variance(_: str, summary: Summary) -> Iterator[Highlight]:
    if of := summary["headline"]:
        yield (
            "sleeping, 32 environments, alpha 128, learning as long as rolling out: hts / lockstep",
            f"{of['ratio']['median']:.2f}x (goal {of['goal']:g}x)",
        )
    for row in summary["figures"].get("environments", [])[-1:]:
        yield (
            f"sleeping, {row['value']:g} environments: steps/s of each, relative to 4",
            f"{row['per_env']:.2f} ({row['hts']['median']:,.0f} steps/s in all)",
        )
    for row in (summary["lag"] or [])[-1:]:
        claimed = "no bound" if row["claimed"] is None else f"{row['claimed']:.1f}"
        yield (
            f"sleeping, lag of async at a load of {row['load']:.2f}, in updates (hts: 1)",
            f"{row['lag']['median']:.2f} (Claim 2: {claimed})",
        )


def _sleeping(_: str, summary: Summary) -> Iterator[Highlight]:
    for alpha, of in summary.items():
        yield (
            f"sleeping, {alpha}, hts",
            f"{of['hts']['median']:,.0f} steps/s, {of['share_of_bound']:.0%} of Claim 1's bound, "
            f"{of['ratio']:.2f}x lockstep",
        )


def _determinism(_: str, summary: Summary) -> Iterator[Highlight]:
    for work, of in summary["works"].items():
        yield f"{work}: cost of determinism", f"{of['cost']:.1%}"


def _peers(_: str, summary: Summary) -> Iterator[Highlight]:
    for work, of in summary["work"].items():
        ours = f"{of['htsrl']['median']:,.0f} steps/s"
        if of["fastest"] is None:
            yield f"{work}, htsrl", f"{ours}; no peer ran"
        else:
            theirs = f"{of['peers'][of['fastest']]['steps_per_second']['median']:,.0f}"
            yield (
                f"{work}, htsrl against the fastest peer",
                f"{ours}, {of['ratio']['median']:.2f}x {of['fastest']} ({theirs})",
            )


def _learning(task: str, summary: Summary) -> Iterator[Highlight]:
    goals = ", ".join(f"{way} {number}" for way, number in summary["reached"].items())
    yield f"{task}: seeds that reached {summary['goal']:g}", goals
    for what, key in (("mean return over the run", "over_run"), ("score", "scores")):
        if differences := _compared(summary, key):
            intervals = (f"{way} {of['low']:+.4g} to {of['high']:+.4g}" for way, of in differences.items())
            yield f"{task}: {what}, hts less others (95 %)", ", ".join(intervals)


def _compared(summary: Summary, key: str) -> Mapping[str, Any]:
    """The differences to other ways; older records have those of the whole run alone, or just one, to sync."""
    if key in summary:
        return summary[key]["differences"]  # type: ignore[no-any-return]
    older = summary.get("differences") or {"sync": summary.get("difference")}
    return {way: difference for way, difference in older.items() if difference and key == "over_run"}


def _runs(name: str, summary: Summary) -> Iterator[Highlight]:
    kinds: dict[str, list[float]] = {}
    for run, of in summary.items():
        kinds.setdefault(re.sub(r" seed \d+", "", run), []).append(of["score"])
    for kind, scores in kinds.items():
        low, high = min(scores), max(scores)
        seeds = f"{low:.4g}" if len(scores) == 1 else f"{low:.4g} to {high:.4g} over {len(scores)} seeds"
        yield f"{name}: score of {kind}", seeds


def _costs(which: str, summary: Summary) -> Iterator[Highlight]:
    shares = sorted((of["overhead_share"], work) for work, of in summary.items())
    (low, easiest), (high, hardest) = shares[0], shares[-1]
    what = f"CPU time that is overhead{f' ({which})' if which else ''}"
    yield what, f"{low:.0%} ({easiest}) to {high:.0%} ({hardest})"


def _atari_step(_: str, summary: Summary) -> Iterator[Highlight]:
    for game, of in summary.items():
        ratios = [f"{name} {own['times_ours']['median']:.2f}x" for name, own in of.items() if "goal" in own]
        yield f"{game}: CPU time of a step, others / ours", ", ".join(ratios)


def _chaos(task: str, summary: Summary) -> Iterator[Highlight]:
    kills = sum(summary["kills"].values())
    verdict = "equal to the bit" if summary["equal"] else f"differs: {summary['difference']}"
    yield f"{task}: a run with {kills} processes killed, against one undisturbed", verdict


def _restart(_: str, summary: Summary) -> Iterator[Highlight]:
    yield "a killed executor holds the run up", f"{summary['median_standstill_seconds']:.2f} s"


def _keeping(_: str, summary: Summary) -> Iterator[Highlight]:
    costs = ", ".join(f"{algorithm} {of['cost']:.1%}" for algorithm, of in summary.items())
    yield "checkpoints and a spare process: cost", costs


def _memory(_: str, summary: Summary) -> Iterator[Highlight]:
    for work, of in summary.items():
        yield f"{work}: steps/s with an LSTM, over those without", f"{of['lstm']['share']['median']:.2f}"


KINDS: Mapping[str, Callable[[str, Summary], Iterator[Highlight]]] = {
    "throughput": _throughput,
    "soak": _soak,
    "limits": _limits,
    "peers": _peers,
    "variance": _variance,
    "sleeping": _sleeping,
    "determinism": _determinism,
    "learning": _learning,
    "runs": _runs,
    "costs": _costs,
    "atari-step": _atari_step,
    "chaos": _chaos,
    "restart": _restart,
    "keeping": _keeping,
    "memory": _memory,
}
"""By how a record's name begins; what follows is passed on."""
