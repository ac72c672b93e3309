"""A worker's process: `python -m htsrl_bench.reactor.worker NUMBER BLOCK OWN_BELL DRIVER_BELL LIFELINE`."""

from __future__ import annotations

import os
import sys

from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.dataflow.signals import Doorbell, Waiter
from htsrl.processes.parent_death import die_with_parent
from htsrl_bench.reactor.graphs import GRAPHS
from htsrl_bench.reactor.reacting import Reacting
from htsrl_bench.reactor.workers import DEADLINE_SECONDS, arrays, outputs_in


def main() -> None:
    number, block_fd, own, driver, lifeline = map(int, sys.argv[1:])
    die_with_parent(os.getppid())
    block, bell, answer = SharedArrays(arrays(), block_fd), Doorbell(own), Doorbell(driver)
    waiter, reacting, graphs = Waiter(bell, lifeline), Reacting(number), [*GRAPHS.values()]
    outputs = {graph.name: outputs_in(block, graph, number) for graph in graphs if number < graph.num_workers}
    while True:
        waiter.clear()
        tag = int(block["asked"][number])
        if tag == block["answered"][number]:
            waiter.wait(DEADLINE_SECONDS)
            continue
        graph = graphs[int(block["graph"][0])]
        given = block[f"{graph.name}: given"]
        reacting.react(graph.name, given, outputs[graph.name], float(block["jitter"][0]))
        block["answered"][number] = tag
        answer.ring()


if __name__ == "__main__":
    main()
