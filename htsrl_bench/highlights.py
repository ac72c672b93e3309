"""What a record comes down to: a line or a few for a table of results, read from its summary."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from htsrl.statistics.intervals import Interval, mean_interval
from htsrl_bench.suite_verdict import iqm_words

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
    for work, of in summary["works"].items():
        yield f"{work}: roofline", f"{of['roofline']['median']:,.0f} steps/s"


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
        low, high = of["cost_range"]
        yield f"{work}: cost of determinism (lowest to highest)", f"{of['cost']:.1%} ({low:.1%} to {high:.1%})"


def of_cpu_time(of: Summary) -> str:
    """A peer's CPU time for a step over htsrl's, of the peer that needs least."""
    cpu = {name: times["median"] for name, times in of["cpu_microseconds"].items()}
    peer = min((name for name in cpu if not name.startswith("htsrl")), key=lambda name: cpu[name])
    ours = cpu["htsrl"]
    return f"{cpu[peer] / ours:.2f}x {peer} in steps for a core-second ({1e6 / ours:,.0f}), on a busy machine"


def _peers(_: str, summary: Summary) -> Iterator[Highlight]:
    for work, of in summary["work"].items():
        if summary.get("busy"):
            yield f"{work}, htsrl against the fastest peer", of_cpu_time(of)
            continue
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
    seeds = _seeds(summary["num_seeds"])
    goals = ", ".join(f"{way} {number}" for way, number in summary["reached"].items())
    yield f"{task}, {seeds}: how many reached {summary['goal']:g}", goals
    for what, key in (("mean return over the run", "over_run"), ("score", "scores")):
        differences = ", ".join(difference(summary[key], way) for way in summary["reached"] if way != "hts")
        if differences:
            yield f"{task}, {seeds}: {what}, hts less others (95 % interval, paired seeds)", differences


def difference(compared: Summary, way: str) -> str:
    """hts less a way, with its interval where there is one."""
    of = compared["differences"].get(way)
    if of is None:
        return f"{way} {compared['means']['hts'] - compared['means'][way]:+.4g} (no interval)"
    if of["low"] == of["high"]:
        return f"{way} {of['mean']:+.4g} on each"
    return f"{way} {of['mean']:+.4g} ({of['low']:+.4g} to {of['high']:+.4g})"


def _lag(task: str, summary: Summary) -> Iterator[Highlight]:
    first, *others = summary["lags"]
    differences = ", ".join(_lag_difference(row) for row in others)
    if differences:
        what = (
            f"{task}, {_seeds(summary['num_seeds'])}, {summary['steps']:,} steps: mean return over the run, lag K less"
        )
        yield f"{what} lag {first['lag']} (95 % interval, paired seeds)", differences


def _lag_difference(row: Summary) -> str:
    of = row["over_run_less_first"]
    if not isinstance(of, Mapping):
        return f"{row['lag']}: {of:+.4g} (no interval)"
    return f"{row['lag']}: {of['mean']:+.4g} ({of['low']:+.4g} to {of['high']:+.4g})"


def _seeds(number: int) -> str:
    return f"{number} seeds" if number > 1 else "1 seed"


def _runs(name: str, summary: Summary) -> Iterator[Highlight]:
    kinds: dict[str, list[float]] = {}
    for run, of in summary.items():
        kinds.setdefault(re.sub(r" seed \d+", "", run), []).append(of["score"])
    for kind, scores in kinds.items():
        interval = mean_interval(scores)
        score = f"{scores[0]:.4g}{' on each' if interval is not None else ''}"
        if interval is not None and not interval.is_constant:
            score = f"{interval.mean:.4g} (95 % interval {interval.low:.4g} to {interval.high:.4g})"
        yield f"{name}, {_seeds(len(scores))}: score of {kind}", score


def _costs(_: str, summary: Summary) -> Iterator[Highlight]:
    for work, of in summary.items():
        yield f"{work}: CPU time that is overhead", f"{of['overhead_share']:.0%}"


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


def _recurrent(_: str, summary: Summary) -> Iterator[Highlight]:
    for work, of in summary.items():
        yield f"{work}: steps/s with an LSTM, over those without", f"{of['lstm']['share']['median']:.2f}"


def _dashboard(_: str, summary: Summary) -> Iterator[Highlight]:
    goals = {what: of for what, of in summary.items() if of["goal"] is not None}
    num_met = sum(of["median"] < of["goal"] for of in goals.values())
    first = summary["first paint"]["median"]
    yield "dashboard of 100 runs of a million points", f"first paint {first:.1f} s; {num_met} of {len(goals)} goals met"


def _watching(work: str, summary: Summary) -> Iterator[Highlight]:
    def shares(ratio: str) -> str:
        ratios = {side: of[ratio] for side, of in summary.items() if side not in ("off", "digest")}
        each = "{} {median:.1%} ({lowest:.1%} to {highest:.1%})"
        return ", ".join(each.format(side, **of) for side, of in ratios.items())

    yield f"{work}: CPU time of a step of a run that is watched, over one that shows nothing", shares("cpu_of_off")
    yield (
        f"{work}: steps/s of a run that is watched, by the cores that its evaluation left, over one that shows nothing",
        shares("of_off_apart_from_evaluation"),
    )


def _checkouts(_: str, summary: Summary) -> Iterator[Highlight]:
    before, now = (summary["commits"][side][:7] for side in ("before", "now"))
    for work, of in summary["works"].items():
        ratio = "{median:.2f}x ({lowest:.2f} to {highest:.2f})".format(**of["ratio"])
        yield f"{work}: steps/s of {now} over those of {before}", ratio


def _timeline(_: str, summary: Summary) -> Iterator[Highlight]:
    for work, of in summary.items():
        spread = "{lowest:.3f} to {highest:.3f}".format(**of["ratio"])
        yield (
            f"{work}: CPU time of a step with a timeline, over that without",
            f"{of['ratio']['median']:.3f} ({spread})",
        )


def _suite(name: str, summary: Summary) -> Iterator[Highlight]:
    num_tasks = len(summary["tasks"]) - len(summary["not_learned"])
    for of in summary["aggregates"]:
        for other, less in of["less"].items():
            interval = less["iqm"] and Interval(**less["iqm"])
            lower, higher = (", ".join(less[side]) or "none" for side in ("lower", "higher"))
            yield (
                f"suite {name}, {num_tasks} tasks: {of['way']} less {other}, where 1 is what sync has learned",
                f"IQM {iqm_words(interval)}; lower on {lower}, higher on {higher}",
            )


def _lag_divergence(_: str, summary: Summary) -> Iterator[Highlight]:
    for task, by_steps in summary["tasks"].items():
        shown = "; ".join(
            f"{steps} steps: ratio off by {of['lag/ratio_deviation']:.3f}, cosine {of['lag/gradient_cosine']:.3f}"
            for steps, of in by_steps.items()
        )
        yield f"{task}, PPO: version j against j-1, by optimizer steps an update", shown


def _sync_rules(_: str, summary: Summary) -> Iterator[Highlight]:
    differences = summary["accuracy_less_every_update"]
    named = [name for name in differences if ":" not in name and name != "every update"]  # others are controls
    shown = ", ".join(f"{name} {differences[name]['mean']:+.2%}" for name in named)
    yield "sync rules on a classifier of digits: accuracy less that of averaging after every update", shown


def _waiting(law: str, summary: Summary) -> Iterator[Highlight]:
    speeds = {name: of["steps_per_second"]["median"] for name, of in summary["schedules"].items()}
    yield (
        f"environments that wait, {law} steps: steps/s, and hts over Claim 1's bound",
        f"{', '.join(f'{name} {speed:,.0f}' for name, speed in speeds.items())}; {summary['share_of_claim_1']:.0%}",
    )


def _start(_: str, summary: Summary) -> Iterator[Highlight]:
    for work, of in summary.items():
        yield f"{work}: seconds from the command to the first update", f"{of['first_update']['median']:.1f}"


def _plan(_: str, summary: Summary) -> Iterator[Highlight]:
    for work, of in summary.items():
        yield (
            f"{work}: steps/s, what the planner predicted, and its choice over the best layout that was run",
            f"{of['measured']:,.0f}, {of['error']:+.0%}, {of['share_of_best']:.0%}",
        )


def _staleness(_: str, summary: Summary) -> Iterator[Highlight]:
    for name, of in summary.items():
        yield (
            f"simulated episodes of a heavy tail, {name}: steps discarded, bias of the lengths learned from",
            f"{of['discarded_steps']:.0%}, {of['bias']:+.0%}",
        )


def _own(_: str, summary: Summary) -> Iterator[Highlight]:
    """Of records that say themselves what they come down to."""
    yield from summary["highlights"].items()


KINDS: Mapping[str, Callable[[str, Summary], Iterator[Highlight]]] = {
    "throughput": _throughput,
    "soak": _soak,
    "limits": _limits,
    "peers": _peers,
    "variance": _variance,
    "sleeping": _sleeping,
    "determinism": _determinism,
    "learning": _learning,
    "lag": _lag,
    "runs": _runs,
    "costs": _costs,
    "atari-step": _atari_step,
    "chaos": _chaos,
    "restart": _restart,
    "keeping": _keeping,
    "dashboard": _dashboard,
    "watching": _watching,
    "checkouts": _checkouts,
    "timeline": _timeline,
    "suite": _suite,
    "lag-divergence": _lag_divergence,
    "recurrent": _recurrent,
    "memory": _recurrent,  # what records from before call it
    "sync-rules": _sync_rules,
    "sync-rules-cartpole": _own,
    "sync-rules-halfcheetah": _own,
    "reactor": _own,
    "islands": _own,
    "waiting": _waiting,
    "start": _start,
    "plan": _plan,
    "staleness": _staleness,
    "system": _own,
    "replay-buffer": _own,
    "offline": _own,
    "language": _own,
}
"""By how a record's name begins; what follows is passed on."""
