"""A worker process: builds its roles from the blueprint and drives them until the run stops.

Started as `python -m htsrl.placements.worker PARENT_PID`, with its equipment and then its assignment on standard input.
A fresh interpreter rather than a fork: no inherited locks, threads or file descriptors, and no second run of the user's
script. With `--spare` it first prepares for all that any worker could need, and then waits for one to die.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import traceback
from dataclasses import dataclass, fields
from typing import Any

import cloudpickle
import gymnasium

from htsrl.checkpoint.of_run import background_checkpoints
from htsrl.dataflow.exchange import Cost
from htsrl.dataflow.gradient_orders import GradientOrders, Helpers
from htsrl.dataflow.memory import SharedArrays
from htsrl.dataflow.shared import Shared
from htsrl.dataflow.signals import ThreadBell, Waiter
from htsrl.envs.make import import_modules
from htsrl.errors import HtsrlError
from htsrl.numerics import use_one_thread
from htsrl.parent_death import die_with_parent
from htsrl.placements.assignment import Assignment, Equipment
from htsrl.placements.blueprint import Blueprint, read_blueprint
from htsrl.placements.messages import Mouthpiece
from htsrl.placements.preparation import Stock, prepare
from htsrl.placements.sleeper import Sleeper
from htsrl.placements.worker_process import DUMP_SIGNAL
from htsrl.process_name import name_this_process
from htsrl.roles.executor import Bells, Executor
from htsrl.roles.meter import Meter
from htsrl.roles.replica import Replica
from htsrl.roles.role import Jittery, Role, advance_all
from htsrl.roles.threaded_executor import ThreadedExecutor


@dataclass(frozen=True)
class Post:
    """A place in a run: which one, and what there is to fill it with."""

    assignment: Assignment
    equipment: Equipment
    blueprint: Blueprint
    stock: Stock


def main() -> None:
    die_with_parent(int(sys.argv[1]))
    equipment: Equipment = cloudpickle.load(sys.stdin.buffer)
    _keep_to_this_process(equipment)
    faulthandler.register(DUMP_SIGNAL, file=equipment.dump_fd)
    mouthpiece = Mouthpiece(equipment.report_fd)
    stock: Stock = []
    if "--spare" in sys.argv:
        stock = prepare(equipment.blueprint_fd, mouthpiece)
        name_this_process("spare")
    try:
        assignment: Assignment = cloudpickle.load(sys.stdin.buffer)
    except EOFError:  # a spare that was not needed
        return
    name_this_process(assignment.hosted.name)
    try:
        _work(Post(assignment, equipment, read_blueprint(equipment.blueprint_fd), stock), mouthpiece)
    except HtsrlError as error:
        mouthpiece.failure(error, str(error))
        sys.exit(1)
    except Exception as error:
        mouthpiece.failure(error, f"{assignment.hosted.name} (pid {os.getpid()}) failed:\n{traceback.format_exc()}")
        sys.exit(1)


def _work(post: Post, mouthpiece: Mouthpiece) -> None:
    import_modules(post.blueprint.experiment.imports)
    memory = SharedArrays(post.blueprint.memory_specs(), post.equipment.memory_fd)
    shared = post.blueprint.shared(memory)
    measures = post.blueprint.config.placement.measure_costs
    meter = Meter(shared.exchange.cpu_seconds[post.assignment.number]) if measures else None
    sleeper = _sleeper(post, shared)
    roles = _build_roles(post, memory, shared, mouthpiece, sleeper, meter)
    while post.stock:
        post.stock.pop().close()
    _take_turns(post, shared, roles, sleeper, meter)
    for role in roles:
        if isinstance(role, Executor | ThreadedExecutor):
            role.close()
        if isinstance(role, ThreadedExecutor) and not role.is_closed:
            os._exit(0)  # an interpreter that ends under threads inside of C code may abort


def _sleeper(post: Post, shared: Shared) -> Sleeper:
    assignment, deadline_seconds = post.assignment, post.blueprint.config.placement.deadline_seconds
    waiter = Waiter(assignment.doorbells.own, post.equipment.lifeline_fd)
    return Sleeper(assignment.hosted.name, assignment.number, shared.exchange, waiter, deadline_seconds)


def _build_roles(
    post: Post, memory: SharedArrays, shared: Shared, mouthpiece: Mouthpiece, sleeper: Sleeper, meter: Meter | None
) -> list[Role]:
    hosted, blueprint, doorbells = post.assignment.hosted, post.blueprint, post.assignment.doorbells
    roles: list[Role] = []
    if hosted.executor is not None:
        roles.append(_build_executor(post, hosted.executor, shared, meter))
    if hosted.actor is not None:
        if blueprint.light is None:
            use_one_thread()
        actor = blueprint.build_actor(hosted.actor, shared, memory, doorbells.ring_executors)
        if meter:
            for policy, method in actor.answers.computations:
                meter.watch(policy, method, Cost.INFERENCE)
        roles.append(actor)
    if hosted.differentiator is not None or hosted.learner:
        use_one_thread()
        parameters = blueprint.build_parameters(memory)
        if hosted.differentiator is not None:
            differentiator = blueprint.build_differentiator(
                hosted.differentiator, memory, shared, parameters, doorbells.ring_learner
            )
            if meter:
                meter.watch(differentiator, "carry_out", Cost.LEARNING)
            roles.append(differentiator)
        if hosted.learner:
            report = meter.read_total_before(mouthpiece.update) if meter else mouthpiece.update
            checkpoints = background_checkpoints(blueprint.config, memory, shared, mouthpiece.checkpoint)
            if meter:
                meter.watch(checkpoints, "at_barrier", Cost.KEEPING)
            wake, at_barrier = doorbells.ring_all, checkpoints.at_barrier
            helpers = Helpers(GradientOrders(memory), doorbells.ring_differentiators, sleeper.sleep_until)
            has_helpers = len(blueprint.learner_shards) > 1
            learner = blueprint.build_learner(
                memory, shared, parameters, wake, report, at_barrier, helpers if has_helpers else None
            )
            if meter:
                meter.watch(learner, "learn", Cost.LEARNING)
                if learner.completion:
                    meter.watch(learner.completion, "complete", Cost.INFERENCE)
            roles.append(learner)
    return roles


def _build_executor(post: Post, index: int, shared: Shared, meter: Meter | None) -> Executor | ThreadedExecutor:
    making = threading.Lock()  # constructors of several may not bear each other, on threads

    def make_env() -> gymnasium.Env[Any, Any]:
        with making:
            env = post.stock.pop() if post.stock else post.blueprint.make_env()
        if meter:
            meter.watch_simulator(env)
        return env

    def make_replica(env: int) -> Replica:
        replica = post.blueprint.build_replica(env, shared, make_env)
        if meter:
            meter.watch(replica, "keep_capsule", Cost.KEEPING)
        return replica

    doorbells, envs = post.assignment.doorbells, post.blueprint.executor_envs[index]
    if not post.blueprint.on_threads:
        bells = Bells(doorbells.ring_actors, doorbells.ring_learner)
        return Executor([make_replica(env) for env in envs], bells)

    def notify_learner() -> None:
        if meter:
            meter.read_total()  # the main thread, which does so at every turn, takes none
        doorbells.ring_learner()

    bells, jitter_seconds = Bells(doorbells.ring_actors, notify_learner), post.blueprint.config.placement.jitter_seconds
    thread_bells = {env: bell for env in envs if isinstance(bell := doorbells.executor_of[env], ThreadBell)}
    return ThreadedExecutor(thread_bells, make_replica, bells, doorbells.own.ring, jitter_seconds)


def _take_turns(post: Post, shared: Shared, roles: list[Role], sleeper: Sleeper, meter: Meter | None) -> None:
    """Work while there is work; else look once more after clearing the doorbell, then sleep until it rings."""
    jitter_seconds, exchange = post.blueprint.config.placement.jitter_seconds, shared.exchange
    turns = [Jittery(role, jitter_seconds) for role in roles] if jitter_seconds else roles
    sleeper.has_started()
    while not exchange.stopping:
        if meter:
            meter.read_total()
        if advance_all(turns):
            sleeper.has_worked()
            continue
        sleeper.clear()
        if exchange.stopping or advance_all(turns):
            continue
        sleeper.sleep(lambda: "; ".join(role.waits_for() for role in roles), may_be_long=lambda: _has_finished(roles))


def _keep_to_this_process(equipment: Equipment) -> None:
    """An environment that forks must not take our descriptors along: they would outlive this process."""
    for field in fields(equipment):
        os.set_inheritable(getattr(equipment, field.name), False)


def _has_finished(roles: list[Role]) -> bool:
    """Whether this worker has made all its rollouts, and may wait as long as the learner takes for the last ones."""
    return any(isinstance(role, Executor | ThreadedExecutor) and role.finished for role in roles)


if __name__ == "__main__":
    main()
