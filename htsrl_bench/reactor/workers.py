"""What runs a graph: one process, htsrl's shared memory with words and doorbells, or actors of Ray."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from htsrl.cluster.connection import connect
from htsrl.dataflow.shared_arrays import ArraySpec, SharedArrays
from htsrl.dataflow.signals import Doorbell, Waiter
from htsrl.errors import HtsrlError
from htsrl_bench.reactor.graphs import GRAPHS, NUM_WORKERS, Array, Graph, Outputs
from htsrl_bench.reactor.reacting import Reacting

DEADLINE_SECONDS = 120.0
STORE_BYTES = 1 << 30
INLINE_BYTES = 100 * 1024
"""Of an argument that Ray sends along with a call; larger ones are put into its store, once for all workers."""


class Workers(Protocol):
    """Sixteen of them, of which a graph uses the first."""

    def turn(self, graph: Graph, num_workers: int, given: Array, jitter_seconds: float = 0.0) -> Sequence[Outputs]:
        """One tag. What is returned may be written over at the next."""


class InOneProcess:
    """One after another, for nobody to hand anything to."""

    def __init__(self) -> None:
        self._workers = [Reacting(number) for number in range(NUM_WORKERS)]

    def turn(self, graph: Graph, num_workers: int, given: Array, jitter_seconds: float = 0.0) -> Sequence[Outputs]:
        outputs = [graph.empty_outputs() for _ in range(num_workers)]
        for worker, output in zip(self._workers, outputs, strict=False):
            worker.react(graph.name, given, output, jitter_seconds)
        return outputs


def arrays() -> list[ArraySpec]:
    """Words with one writer each, and a place for all that any graph passes."""
    words = [
        ArraySpec("asked", (NUM_WORKERS,), "int64"),  # the driver: the tag that each worker is to react at
        ArraySpec("answered", (NUM_WORKERS,), "int64"),  # each worker its own
        ArraySpec("graph", (1,), "int64"),  # the driver
        ArraySpec("jitter", (1,), "float64"),  # the driver
    ]
    for graph in GRAPHS.values():
        words.append(ArraySpec(f"{graph.name}: given", graph.given.shape, graph.given.dtype))
        words += [
            ArraySpec(f"{graph.name}: {name}", (graph.num_workers, *of.shape), of.dtype)
            for name, of in graph.outputs.items()
        ]
    return words


def outputs_in(block: SharedArrays, graph: Graph, number: int) -> Outputs:
    return {name: block[f"{graph.name}: {name}"][number, ...] for name in graph.outputs}


class SharedWorkers:
    """Processes over htsrl's block of shared memory: data first, then a word, then a doorbell."""

    def __init__(self, block: SharedArrays, bells: Sequence[Doorbell], waiter: Waiter) -> None:
        self._block = block
        self._bells = bells
        self._waiter = waiter
        self._tag = 0
        self._numbers = {name: place for place, name in enumerate(GRAPHS)}
        self._outputs = {
            graph.name: [outputs_in(block, graph, number) for number in range(graph.num_workers)]
            for graph in GRAPHS.values()
        }

    def turn(self, graph: Graph, num_workers: int, given: Array, jitter_seconds: float = 0.0) -> Sequence[Outputs]:
        self._block[f"{graph.name}: given"][...] = given
        self._block["graph"][0], self._block["jitter"][0] = self._numbers[graph.name], jitter_seconds
        self._tag += 1
        self._block["asked"][:num_workers] = self._tag
        for bell in self._bells[:num_workers]:
            bell.ring()
        answered = self._block["answered"][:num_workers]
        while True:
            self._waiter.clear()
            if (answered == self._tag).all():
                return self._outputs[graph.name][:num_workers]
            if not self._waiter.wait(DEADLINE_SECONDS):
                raise HtsrlError(f"workers of {graph.name} did not answer within {DEADLINE_SECONDS:g} s")


@contextmanager
def shared_workers(num_workers: int = NUM_WORKERS) -> Iterator[SharedWorkers]:
    block, own = SharedArrays(arrays(), sparse=True), Doorbell.create()
    bells = [Doorbell.create() for _ in range(num_workers)]
    lifeline, our_end = os.pipe()  # nobody writes to it: it breaks when this process dies
    processes = []
    try:
        for number, bell in enumerate(bells):
            fds = (block.fd, bell.fd, own.fd, lifeline)
            command = [sys.executable, "-P", "-m", "htsrl_bench.reactor.worker", str(number), *map(str, fds)]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            processes.append(subprocess.Popen(command, pass_fds=fds, env=environment))
        yield SharedWorkers(block, bells, Waiter(own, lifeline))
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for fd in (our_end, lifeline):
            os.close(fd)
        for bell in (own, *bells):
            bell.close()
        block.close_fd()


class Actor:
    """A worker as an actor of Ray, without anything of htsrl's runtime."""

    def __init__(self, number: int) -> None:
        self._reacting = Reacting(number)

    def react(self, graph: str, given: Array, jitter_seconds: float) -> Outputs:
        out = GRAPHS[graph].empty_outputs()
        self._reacting.react(graph, given, out, jitter_seconds)
        return out


class RayWorkers:
    """Sixteen actors, asked with one call each."""

    def __init__(self) -> None:
        self._ray = connect(None, STORE_BYTES)
        remote = self._ray.remote(Actor).options(num_cpus=0)
        self._actors = [remote.remote(number) for number in range(NUM_WORKERS)]

    def ask(self, graph: Graph, num_workers: int, given: Array, jitter_seconds: float) -> list[Any]:
        argument = self._ray.put(given) if given.nbytes > INLINE_BYTES else given
        return [actor.react.remote(graph.name, argument, jitter_seconds) for actor in self._actors[:num_workers]]

    def turn(self, graph: Graph, num_workers: int, given: Array, jitter_seconds: float = 0.0) -> Sequence[Outputs]:
        outputs: list[Outputs] = self._ray.get(self.ask(graph, num_workers, given, jitter_seconds))
        return outputs

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)


class AsTheyCome:
    """The same actors, with what they return in the order in which it comes: without logical time."""

    def __init__(self, workers: RayWorkers) -> None:
        self._workers = workers
        self._ray = connect(None)

    def turn(self, graph: Graph, num_workers: int, given: Array, jitter_seconds: float = 0.0) -> Sequence[Outputs]:
        under_way, outputs = self._workers.ask(graph, num_workers, given, jitter_seconds), list[Outputs]()
        while under_way:
            (first,), under_way = self._ray.wait(under_way, num_returns=1)
            outputs.append(self._ray.get(first))
        return outputs


def rounds(
    workers: Workers, graph: Graph, num_workers: int, jitter_seconds: float = 0.0
) -> Iterator[Sequence[Outputs]]:
    """Tag after tag, for ever."""
    driver = graph.driver()
    given = driver.begin()
    while True:
        outputs = workers.turn(graph, num_workers, given, jitter_seconds)
        yield outputs
        given = np.asarray(driver.advance(outputs))
