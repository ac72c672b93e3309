"""The tables of the record, with what the reactor model's paper found beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from htsrl_bench.reactor.graphs import CARTPOLE, HAND_OVERS, INFERENCES, PONG
from htsrl_bench.reactor.measure import (
    HTSRL,
    ONE_PROCESS,
    RAY,
    WORKER_COUNTS,
    Cell,
    Hashes,
    Measured,
    ratio,
)
from htsrl_bench.record import Summary, Table

PAPER: Mapping[str, str] = {
    CARTPOLE.name: "1.21 (Gym)",
    PONG.name: "11.62 (Atari)",
    INFERENCES[0].name: "2.37",
    INFERENCES[1].name: "5.12",
}
PAPER_BROADCAST = "3.42 (24.3 to 7.1 ms)"


def _middle(measured: Sequence[Measured], cell: str, way: str, field: str) -> float:
    return Summary.of([getattr(one, field) for one in measured if one.cell == cell and one.way == way]).median


def _shown(summary: Summary) -> str:
    return f"{summary.median:.2f} ({summary.lowest:.2f} to {summary.highest:.2f})"


def hand_over_table(measured: Sequence[Measured], repetitions: int, seconds: float) -> Table:
    rows = []
    for graph in HAND_OVERS:
        for count in WORKER_COUNTS:
            cell = str(Cell(graph, count))
            times = [
                f"{_middle(measured, cell, way, field):.3g}"
                for way in (HTSRL, RAY)
                for field in ("median_milliseconds", "p99_milliseconds")
            ]
            is_of_paper = graph is HAND_OVERS[-1] and count == max(WORKER_COUNTS)
            by_median = _shown(ratio(measured, cell, RAY, HTSRL, "median_milliseconds"))
            rows.append([graph.name, str(count), *times, by_median, PAPER_BROADCAST if is_of_paper else "-"])
    headings = ["array", "workers", "htsrl p50 ms", "p99", "Ray p50 ms", "p99", "Ray / htsrl at p50", "paper"]
    note = (
        "Broadcast of an array to all workers and gather of a copy from each, until the driver has them all. Medians "
        f"over {repetitions} repetitions of {seconds:g} s each, in which the two take turns; ratios with the lowest "
        "and the highest. A p99 of fewer than 100 tags is about the longest. Ray has arrays above 100 kB put into its "
        "store once for all workers; the paper's program hands them to every call."
    )
    return Table(headings, rows, [note])


def works_table(measured: Sequence[Measured]) -> Table:
    rows = []
    for graph, per_tag in ((CARTPOLE, "obs/s"), (PONG, "obs/s"), *((graph, "tags/s") for graph in INFERENCES)):
        cell = str(Cell(graph, graph.num_workers))
        factor = graph.num_workers if per_tag == "obs/s" else 1
        speeds = [
            f"{factor * _middle(measured, cell, way, 'tags_per_second'):,.0f}" for way in (ONE_PROCESS, HTSRL, RAY)
        ]
        by_speed = _shown(ratio(measured, cell, HTSRL, RAY, "tags_per_second"))
        rows.append([graph.name, str(graph.num_workers), per_tag, *speeds, by_speed, PAPER[graph.name]])
    headings = ["graph", "workers", "unit", "one process", "htsrl", "Ray", "htsrl / Ray", "paper"]
    note = (
        "CartPole-v1 and ALE/Pong-v5 (whole images, four frames a step), an environment in each worker and a wait for "
        "all at every step, as in the paper's programs; a policy of 64 hidden units in torch for each agent, with a "
        "team's environment that costs next to nothing where the paper's is the traffic junction of ma_gym. The "
        "paper's machine and its runtime in C are others."
    )
    return Table(headings, rows, [note])


def hash_table(found: Sequence[Hashes], num_tags: int, jitter_seconds: float) -> Table:
    oracle = {one.graph: one.digests[0] for one in found if one.way == ONE_PROCESS}
    rows = [
        [
            one.graph,
            one.way,
            str(len(one.digests)),
            str(one.num_different),
            "yes" if set(one.digests) == {oracle[one.graph]} else "no",
        ]
        for one in found
        if one.way != ONE_PROCESS
    ]
    headings = ["graph", "way", "runs", "different hashes", "that of one process"]
    note = (
        f"Of all that the driver saw over {num_tags} tags, with each reaction held up by up to "
        f"{jitter_seconds * 1000:g} ms, drawn anew every time. As they come: Ray's answers in the order of their "
        "arrival, the negative control."
    )
    return Table(headings, rows, [note])


def highlights(tags_per_second_ratios: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """For a table of results, from the ratios of htsrl's tags per second to Ray's."""
    cells = [Cell(graph, WORKER_COUNTS[-1]) for graph in HAND_OVERS]
    cells += [Cell(graph, graph.num_workers) for graph in (CARTPOLE, PONG, *INFERENCES)]
    shown = [f"{cell} {tags_per_second_ratios[str(cell)]['median']:.1f}x" for cell in cells]
    return {"graphs of workers, htsrl's shared memory / plain Ray actors": "; ".join(shown)}
