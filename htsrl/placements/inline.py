"""All roles in this process, turn by turn: for the debugger, and the oracle that other placements must match."""

from __future__ import annotations

from htsrl.checkpoint.of_run import background_checkpoints
from htsrl.checkpoint.snapshots import Snapshots, in_order
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.placements.blueprint import Blueprint
from htsrl.placements.instruments import Instruments
from htsrl.placements.supervisor import Listeners
from htsrl.roles.executor import NO_BELLS
from htsrl.roles.role import Jittery, Role, advance_all


def run_inline(blueprint: Blueprint, block: SharedArrays, listeners: Listeners) -> None:
    """Train to the end, reporting after every update."""
    shared = blueprint.shared(block)
    instruments = Instruments(blueprint, block, number=0) if blueprint.config.placement.timeline else None
    parameters = blueprint.build_parameters(block)
    executors = [blueprint.build_executor(i, shared, NO_BELLS) for i in range(len(blueprint.executor_envs))]
    num_actors = len(blueprint.actor_envs)
    actors = [blueprint.build_actor(i, shared, block, lambda envs: None, parameters) for i in range(num_actors)]
    checkpoints = background_checkpoints(blueprint.config, block, shared, listeners.on_checkpoint)
    if instruments:
        instruments.watch_checkpoints(checkpoints)
    snapshots = Snapshots(blueprint.config, parameters.module)
    at_barrier = in_order(checkpoints.at_barrier, snapshots.at_barrier)
    learner = blueprint.build_learner(block, shared, parameters, lambda: None, listeners.on_report, at_barrier)
    if instruments:
        for env_runner in (env_runner for executor in executors for env_runner in executor.env_runners):
            instruments.watch_env_runner(env_runner)
        for actor in actors:
            instruments.watch_actor(actor)
        instruments.watch_learner(learner)
        instruments.have_started()
    roles: list[Role] = [*executors, *actors, learner]
    jitter = blueprint.config.placement.jitter_seconds
    if jitter:
        roles = [Jittery(role, jitter) for role in roles]
    try:
        while not learner.finished:
            progressed = advance_all(roles)
            assert progressed, f"nobody can go on: {[role.waits_for() for role in roles]}"
            listeners.on_look()
    finally:
        checkpoints.finish()
        if instruments:
            instruments.close()
        for executor in executors:
            executor.close()
