"""One worker, wherever it lives."""

from __future__ import annotations

import time

import numpy as np

from htsrl_bench.reactor.graphs import GRAPHS, Array, Outputs, Reaction


class Reacting:
    """Has the worker of its number in every graph, each made when it is first asked for anything."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._reactions: dict[str, Reaction] = {}
        self._jitter = np.random.default_rng()  # of no seed, for it is to be another every time

    def react(self, graph: str, given: Array, out: Outputs, jitter_seconds: float) -> None:
        if graph not in self._reactions:
            self._reactions[graph] = GRAPHS[graph].reaction(self._number)
        if jitter_seconds:
            time.sleep(self._jitter.random() * jitter_seconds)
        self._reactions[graph](given, out)
