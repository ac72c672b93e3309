"""The graphs of `htsrl bench reactor`: what is computed depends on tags alone, and what its tables say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from htsrl_bench.announcer import Announcer
from htsrl_bench.reactor.graphs import AVERAGING, HAND_OVERS, Array, Graph, Outputs
from htsrl_bench.reactor.measure import CELLS, HTSRL, ONE_PROCESS, RAY, Measured, digest, hashes
from htsrl_bench.reactor.report import hand_over_table, hash_table, works_table
from htsrl_bench.reactor.workers import InOneProcess, Workers, rounds, shared_workers

NUM_TAGS = 6


class InAnotherOrder(InOneProcess):
    """What a driver sees that takes answers as they come."""

    def turn(self, graph: Graph, num_workers: int, given: Array, jitter_seconds: float = 0.0) -> Sequence[Outputs]:
        return [*reversed([*super().turn(graph, num_workers, given, jitter_seconds)])]


def test_workers_over_shared_memory_compute_what_one_process_does_however_long_they_take() -> None:
    graph = replace(AVERAGING, num_workers=2)
    alone = digest(InOneProcess(), graph, NUM_TAGS, 0.0)
    with shared_workers(2) as shared:
        assert {digest(shared, graph, NUM_TAGS, jitter) for jitter in (0.0, 0.003, 0.003)} == {alone}
        (outputs,) = islice(rounds(shared, HAND_OVERS[0], 1), 1)
        assert (outputs[0]["copy"] == 1).all()
    assert digest(InAnotherOrder(), graph, NUM_TAGS, 0.0) != alone


def test_a_hash_that_differs_is_told() -> None:
    ways: dict[str, Workers] = {ONE_PROCESS: InOneProcess(), HTSRL: InAnotherOrder()}
    found = hashes(ways, num_runs=2, num_tags=3, jitter_seconds=0.0, announcer=Announcer(6))
    table = hash_table([one for one in found if one.graph == AVERAGING.name], 3, 0.0)
    assert [*table.rows[0]][1:] == [HTSRL, "2", "1", "no"]


def test_ratios_are_those_of_repetitions() -> None:
    speeds = {ONE_PROCESS: 500.0, HTSRL: 300.0, RAY: 100.0}
    measured = [
        Measured(
            str(cell), way, repetition, 10, 1000 / speed / repetition, 20.0, speed * (repetition if way == RAY else 1)
        )
        for cell in CELLS
        for way, speed in speeds.items()
        for repetition in (1, 2, 3)
    ]
    assert works_table(measured).rows[0][-2] == "1.50 (1.00 to 3.00)"
    assert hand_over_table(measured, 3, 1.0).rows[0][-2] == "3.00 (3.00 to 3.00)"
