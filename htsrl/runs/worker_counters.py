"""What the workers of a run have counted so far, for its metrics and for the terminal."""

from __future__ import annotations

import time

from htsrl.dataflow.exchange import Cost, Exchange
from htsrl.metrics.gauges import Counters
from htsrl.placements.assignment import worker_layout
from htsrl.placements.blueprint import Blueprint

WAYS = ("up", "down")
"""What islands send the learner, and it them."""


def readings(blueprint: Blueprint, exchange: Exchange) -> dict[str, float]:
    """What the workers have written about themselves so far."""
    found = _waited_seconds(blueprint, exchange)
    if blueprint.islands:
        found |= {f"cluster/bytes_{way}": float(x) for way, x in zip(WAYS, exchange.crossed_bytes, strict=True)}
    if blueprint.config.placement.measure_costs:
        spent = exchange.cpu_seconds.sum(axis=0)
        spent[Cost.TOTAL] += time.process_time()
        found |= {f"cpu/{cost.name.lower()}_seconds": float(spent[cost]) for cost in Cost}
    return found


def counters(blueprint: Blueprint, exchange: Exchange) -> Counters:
    """For the terminal; inline, everybody takes turns and nobody waits."""
    waited = {} if blueprint.config.placement.backend == "inline" else _waited_seconds(blueprint, exchange)
    by_kind = {name.removeprefix("wait/").removesuffix("_seconds"): seconds for name, seconds in waited.items()}
    if blueprint.acts_for_itself and "executor" in by_kind:
        by_kind.pop("actor", None)  # one process, so one bar
    # Stepped in turn by one process, environments are not waited for one by one.
    is_in_turn = not waited or (len(blueprint.executor_envs) == 1 and not blueprint.on_threads)
    return Counters(by_kind) if is_in_turn else Counters(by_kind, exchange.env_seconds.copy())


def _waited_seconds(blueprint: Blueprint, exchange: Exchange) -> dict[str, float]:
    """Seconds waited so far, as the mean over the workers that host a role."""
    hosted = worker_layout(blueprint)
    kinds = {
        # On threads, environments wait each by itself, and their worker hardly ever for all of them.
        "executor": [i for i, of in enumerate(hosted) if of.executor is not None and not blueprint.on_threads],
        "actor": [i for i, worker in enumerate(hosted) if worker.actor is not None],
        "learner": [i for i, worker in enumerate(hosted) if worker.learner],
        "gradient_worker": [i for i, worker in enumerate(hosted) if worker.gradient_worker is not None],
    }
    waited = exchange.waited_seconds
    return {f"wait/{kind}_seconds": float(waited[workers].mean()) for kind, workers in kinds.items() if workers}
