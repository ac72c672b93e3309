"""All roles in this process, turn by turn: for the debugger, and the oracle that other placements must match."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from htsrl.checkpoint.of_run import background_checkpoints
from htsrl.checkpoint.snapshots import SnapshotWriter, in_order
from htsrl.dataflow.gradient_orders import Wait
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.placements.blueprint import Blueprint
from htsrl.placements.instruments import Instruments
from htsrl.placements.supervisor import Listeners
from htsrl.roles.executor import NO_BELLS, Executor
from htsrl.roles.role import Collector, Jittery, Role, advance_all
from htsrl.roles.shared import Shared

if TYPE_CHECKING:
    from htsrl.dataflow.parameters import ParameterRing
    from htsrl.roles.actor import Actor
    from htsrl.roles.learner import Learner


def run_inline(blueprint: Blueprint, block: SharedArrays, listeners: Listeners) -> None:
    """Train to the end, reporting after every update."""
    shared = blueprint.shared(block)
    instruments = Instruments(blueprint, block, number=0) if blueprint.config.placement.timeline else None
    rings = [blueprint.build_parameters(block, replica=replica) for replica in range(blueprint.num_replicas)]
    collectors = _build_collectors(blueprint, block, shared, rings[0])
    ring_of = [rings[blueprint.replica_of(envs[0])] for envs in blueprint.actor_envs]
    actors = [blueprint.build_actor(i, shared, block, lambda envs: None, ring) for i, ring in enumerate(ring_of)]
    checkpoints = background_checkpoints(blueprint.config, block, shared, listeners.on_checkpoint)
    if instruments:
        instruments.watch_checkpoints(checkpoints)
    others: list[Role] = [
        blueprint.build_replica_learner(replica, block, shared, lambda: None)
        for replica in range(1, blueprint.num_replicas)
    ]
    learner = blueprint.build_learner(
        block,
        shared,
        rings[0],
        lambda: None,
        listeners.on_report,
        in_order(checkpoints.at_barrier, SnapshotWriter(blueprint.config, rings[0].module).at_barrier),
        wait_for_replicas=advance_until(lambda: advance_all(others)),
    )
    if instruments:
        _watch(instruments, collectors, actors, learner)
    try:
        _take_turns([*collectors, *actors, *others], learner, blueprint.config.placement.jitter_seconds, listeners)
    finally:
        checkpoints.finish()
        if instruments:
            instruments.close()
        for collector in collectors:
            collector.close()


def _build_collectors(
    blueprint: Blueprint, block: SharedArrays, shared: Shared, parameters: ParameterRing
) -> Sequence[Executor | Collector]:
    shares = range(len(blueprint.executor_envs))
    if blueprint.collector is None:
        return [blueprint.build_executor(i, shared, NO_BELLS) for i in shares]
    return [blueprint.build_collector(i, block, shared, NO_BELLS, parameters=parameters) for i in shares]


def _watch(
    instruments: Instruments, collectors: Sequence[Executor | Collector], actors: Sequence[Actor], learner: Learner
) -> None:
    for collector in collectors:
        if isinstance(collector, Executor):
            for env_runner in collector.env_runners:
                instruments.watch_env_runner(env_runner)
        else:
            instruments.watch_collector(collector)
    for actor in actors:
        instruments.watch_actor(actor)
    instruments.watch_learner(learner)
    instruments.have_started()


def _take_turns(others: Sequence[Role], learner: Learner, jitter: float, listeners: Listeners) -> None:
    roles = [*others, learner]
    roles = [Jittery(role, jitter) for role in roles] if jitter else roles
    while not learner.finished:
        progressed = advance_all(roles)
        assert progressed, f"nobody can proceed: {[role.waits_for() for role in roles]}"
        listeners.on_look()


def advance_until(advance: Callable[[], bool]) -> Wait:
    """How replica 0 waits where the others live in the same process: it gives them their turns."""

    def wait(it_is_so: Callable[[], bool], waits_for: Callable[[], str]) -> None:
        while not it_is_so():
            progressed = advance()  # not within the assertion: `python -O` leaves those out
            assert progressed, f"nobody can proceed: {waits_for()}"

    return wait
