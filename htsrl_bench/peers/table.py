"""The comparison as tables to read."""

from __future__ import annotations

from collections.abc import Sequence

from htsrl_bench.peers.comparison import (
    HOPELESS,
    WARM_UP_SECONDS,
    PeersBench,
    Row,
    Standing,
)
from htsrl_bench.record import Summary, Table

BUSY = "The machine was busy with other things: what is by the clock is no result. CPU time, in the last table, is."


def tables(bench: PeersBench, rows: Sequence[Row], busy: bool = False) -> list[Table]:
    return [_main(bench, rows, [BUSY] if busy else []), _variants(bench, rows), _cpu(rows)]


def _main(bench: PeersBench, rows: Sequence[Row], notes: Sequence[str]) -> Table:
    titles = {name: peer.title for name, peer in bench.peers.items()}
    has_half = any(row.in_half for row in rows)
    cells = [
        [
            row.work,
            str(row.htsrl),
            *(_cell(row.peers[name]) for name in titles),
            titles[row.fastest] if row.fastest else "none",
            _ratio(row.ratio),
            *(_half_cells(row) if has_half else []),
        ]
        for row in rows
    ]
    half = ["htsrl in bfloat16", "/ float32", "/ fastest peer"] if has_half else []
    return Table(
        ["work", "htsrl", *titles.values(), "fastest peer", "htsrl / fastest peer", *half],
        cells,
        [*notes, _how(bench), *_failures(bench, rows)],
    )


def _variants(bench: PeersBench, rows: Sequence[Row]) -> Table:
    """Every variant, the slow ones too."""
    cells = [
        [row.work, bench.peers[name].title, variant, str(summary)]
        for row in rows
        for name, peer in row.peers.items()
        for variant, summary in peer.variants.items()
    ]
    note = (
        f"All variants that ran. One below {HOPELESS:.0%} of its peer's best in the first repetition is not repeated."
    )
    return Table(["work", "peer", "variant", "steps/s"], cells, [note])


def _cpu(rows: Sequence[Row]) -> Table:
    cells = [
        [row.work, name, f"{of.median:.4g} ({of.lowest:.4g} to {of.highest:.4g})", f"{1e6 / of.median:,.0f}"]
        for row in rows
        for name, of in row.cpu_microseconds.items()
    ]
    note = (
        "CPU time of all processes for a step, median (lowest to highest), and the steps that a second of one core "
        "makes. It depends less than steps per second on what else the machine does. Threads of torch that wait for "
        "each other may spin, which counts."
    )
    return Table(["work", "who", "CPU us a step", "steps for a core-second"], cells, [note])


def _cell(peer: Standing) -> str:
    return f"{peer.steps_per_second}, {peer.variant}" if peer.steps_per_second else "failed"


def _half_cells(row: Row) -> list[str]:
    half = row.in_half
    return [str(half.htsrl), _ratio(half.over_float32), _ratio(half.ratio)] if half else ["", "", ""]


def _ratio(ratio: Summary | None) -> str:
    return f"{ratio.median:.2f} ({ratio.lowest:.2f} to {ratio.highest:.2f})" if ratio else "none"


def _how(bench: PeersBench) -> str:
    return (
        f"Agent steps per second with learning, median (lowest to highest) of {bench.repetitions} repetitions in which "
        f"all take turns; of each peer the best variant. Counted between updates over at least "
        f"{bench.seconds_per_run:g} s, from {WARM_UP_SECONDS:g} s after the first update on (htsrl: after its spare "
        "process was prepared). The ratio is that of runs of the same repetition. What is the same for all and what "
        "is not: docs/peers.md."
    )


def _failures(bench: PeersBench, rows: Sequence[Row]) -> list[str]:
    """A sentence for every reason, with all the work that it kept from being done."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        for name, peer in row.peers.items():
            for variant, reason in peer.failures.items():
                sentence = f"{' '.join(filter(None, [bench.peers[name].title, variant]))} failed: {reason}"
                reasons.setdefault(sentence, []).append(row.work)
    return [f"{sentence} ({', '.join(work)})" for sentence, work in reasons.items()]
