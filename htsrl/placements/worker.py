"""A worker process: builds its roles from the blueprint and drives them until the run stops.

Started by a fork server, or as `python -m htsrl.placements.worker PARENT_PID`, with its equipment and then its
assignment on standard input. Never a fork of the user's process: no inherited locks, threads or file descriptors, and
no second run of the user's script. With `--spare` it first prepares for all that any worker could need, and then waits
for one to die.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from typing import Any

import cloudpickle
import gymnasium

from htsrl.checkpoint.of_run import background_checkpoints
from htsrl.checkpoint.snapshots import Snapshots, in_order
from htsrl.dataflow.exchange import Cost
from htsrl.dataflow.gradient_orders import GradientOrders, Helpers
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.dataflow.signals import ThreadBell, Waiter
from htsrl.envs.make import import_modules
from htsrl.errors import HtsrlError
from htsrl.metrics.report import UpdateReport
from htsrl.numerics import use_one_thread
from htsrl.placements.assignment import Assignment, Equipment
from htsrl.placements.blueprint import Blueprint, read_blueprint
from htsrl.placements.fork_server import FLAG, serve
from htsrl.placements.instruments import Instruments
from htsrl.placements.messages import ReportWriter
from htsrl.placements.preparation import PrebuiltEnvs, prepare
from htsrl.placements.sleeper import Sleeper
from htsrl.placements.worker_process import DUMP_SIGNAL, SPARE
from htsrl.processes.parent_death import die_with_parent
from htsrl.processes.process_name import name_this_process
from htsrl.roles.env_runner import EnvRunner
from htsrl.roles.executor import Bells, Executor
from htsrl.roles.meter import Meter
from htsrl.roles.role import Jittery, Notify, Role, advance_all
from htsrl.roles.shared import Shared
from htsrl.roles.threaded_executor import ThreadedExecutor


@dataclass(frozen=True)
class WorkerContext:
    """A place in a run: which one, and what there is to fill it with."""

    assignment: Assignment
    equipment: Equipment
    blueprint: Blueprint
    prebuilt_envs: PrebuiltEnvs
    last_things: ExitStack = field(default_factory=ExitStack)
    """What a worker does before it ends, also where it is stopped."""


def main() -> None:
    if FLAG in sys.argv:
        serve(socket_fd=int(sys.argv[3]), computes="--computes" in sys.argv)
    arguments = sys.argv[1:]
    name_this_process("new spare" if SPARE in arguments else "worker")
    try:
        equipment: Equipment = cloudpickle.load(sys.stdin.buffer)
    except EOFError:  # the parent died before it could say anything
        return
    die_with_parent(int(arguments[0]))
    _keep_to_this_process(equipment)
    faulthandler.register(DUMP_SIGNAL, file=equipment.dump_fd)
    report_writer = ReportWriter(equipment.report_fd)
    prebuilt_envs: PrebuiltEnvs = []
    if SPARE in arguments:
        prebuilt_envs = prepare(equipment.blueprint_fd, report_writer)
        name_this_process("spare")
    try:
        assignment: Assignment = cloudpickle.load(sys.stdin.buffer)
    except EOFError:  # a spare that was not needed
        return
    name_this_process(assignment.hosted.name)
    try:
        learns = assignment.hosted.learner or assignment.hosted.gradient_worker is not None
        blueprint = read_blueprint(equipment.blueprint_fd, learns)
        _work(WorkerContext(assignment, equipment, blueprint, prebuilt_envs), report_writer)
    except HtsrlError as error:
        report_writer.failure(error, str(error))
        sys.exit(1)
    except Exception as error:
        report_writer.failure(error, f"{assignment.hosted.name} (pid {os.getpid()}) failed:\n{traceback.format_exc()}")
        sys.exit(1)


def _work(context: WorkerContext, report_writer: ReportWriter) -> None:
    import_modules(context.blueprint.experiment.imports)
    block = SharedArrays(context.blueprint.block_specs(), context.equipment.block_fd)
    shared = context.blueprint.shared(block)
    measures = context.blueprint.config.placement.measure_costs
    meter = Meter(shared.exchange.cpu_seconds[context.assignment.number]) if measures else None
    sleeper, instruments = _sleeper(context, shared), _instruments(context, block)
    roles = _build_roles(context, block, shared, report_writer, sleeper, meter, instruments)
    while context.prebuilt_envs:
        context.prebuilt_envs.pop().close()
    with context.last_things:
        if instruments:
            context.last_things.callback(instruments.close)
        _take_turns(context, shared, roles, sleeper, meter, instruments)
    for role in roles:
        if isinstance(role, Executor | ThreadedExecutor):
            role.close()
        if isinstance(role, ThreadedExecutor) and not role.is_closed:
            os._exit(0)  # an interpreter that ends under threads inside of C code may abort


def _sleeper(context: WorkerContext, shared: Shared) -> Sleeper:
    assignment, deadline_seconds = context.assignment, context.blueprint.config.placement.deadline_seconds
    waiter = Waiter(assignment.doorbells.own, context.equipment.lifeline_fd)
    return Sleeper(assignment.hosted.name, assignment.number, shared.exchange, waiter, deadline_seconds)


def _instruments(context: WorkerContext, block: SharedArrays) -> Instruments | None:
    assignment, blueprint = context.assignment, context.blueprint
    if not blueprint.config.placement.timeline:
        return None
    hosted = assignment.hosted
    only_keeps_threads = blueprint.on_threads and hosted.executor is not None and hosted.actor is None
    return Instruments(blueprint, block, assignment.number, has_own_work=not only_keeps_threads)


def _build_roles(
    context: WorkerContext,
    block: SharedArrays,
    shared: Shared,
    report_writer: ReportWriter,
    sleeper: Sleeper,
    meter: Meter | None,
    instruments: Instruments | None,
) -> list[Role]:
    hosted, blueprint, doorbells = context.assignment.hosted, context.blueprint, context.assignment.doorbells
    roles: list[Role] = []
    if hosted.executor is not None:
        roles.append(_build_executor(context, hosted.executor, shared, meter, instruments))
    if hosted.actor is not None:
        if blueprint.light is None:
            use_one_thread()
        actor = blueprint.build_actor(hosted.actor, shared, block, doorbells.ring_executors)
        if meter:
            for policy, method in actor.answers.computations:
                meter.watch(policy, method, Cost.INFERENCE)
        if instruments:
            instruments.watch_actor(actor)
        roles.append(actor)
    if hosted.gradient_worker is not None or hosted.learner:
        use_one_thread()
        parameters, beat = blueprint.build_parameters(block), shared.exchange.heartbeat(context.assignment.number)
        if hosted.gradient_worker is not None:
            gradient_worker = blueprint.build_gradient_worker(
                hosted.gradient_worker,
                block,
                shared,
                parameters,
                doorbells.ring_learner,
                _unless_stopped(shared, beat),
            )
            if meter:
                meter.watch(gradient_worker, "carry_out", Cost.LEARNING)
            if instruments:
                instruments.watch_gradient_worker(gradient_worker)
            roles.append(gradient_worker)
        if hosted.learner:
            report = meter.read_total_before(report_writer.update) if meter else report_writer.update
            checkpoints = background_checkpoints(blueprint.config, block, shared, report_writer.checkpoint, beat)
            if meter:
                meter.watch(checkpoints, "at_barrier", Cost.KEEPING)
            if instruments:
                instruments.watch_checkpoints(checkpoints)
            context.last_things.callback(checkpoints.finish)
            snapshots = Snapshots(blueprint.config, parameters.module)
            wake = doorbells.ring_all
            wait = instruments.watch_wait(sleeper.sleep_until) if instruments else sleeper.sleep_until
            helpers = Helpers(GradientOrders(block), doorbells.ring_gradient_workers, wait)
            has_helpers = len(blueprint.learner_shards) > 1
            learner = blueprint.build_learner(
                block,
                shared,
                parameters,
                wake,
                _last_after(checkpoints.finish, report),
                in_order(checkpoints.at_barrier, snapshots.at_barrier),
                helpers if has_helpers else None,
                _unless_stopped(shared, beat),
            )
            if meter:
                meter.watch(learner, "learn", Cost.LEARNING)
                if learner.finisher:
                    meter.watch(learner.finisher, "complete", Cost.INFERENCE)
            if instruments:
                instruments.watch_learner(learner)
            roles.append(learner)
    return roles


def _unless_stopped(shared: Shared, beat: Notify) -> Notify:
    """In the middle of an update: where the run stops, nobody will need the rest of it."""

    def beat_or_end() -> None:
        beat()
        if shared.exchange.stopping:
            sys.exit()

    return beat_or_end


def _last_after(finish: Notify, report: Callable[[UpdateReport], None]) -> Callable[[UpdateReport], None]:
    """Reports as they come; before the last, at which the supervisor ends this process, `finish`."""

    def report_in_order(update: UpdateReport) -> None:
        if update.finished:
            finish()
        report(update)

    return report_in_order


def _build_executor(
    context: WorkerContext, index: int, shared: Shared, meter: Meter | None, instruments: Instruments | None
) -> Executor | ThreadedExecutor:
    making = threading.Lock()  # constructors of several may not bear each other, on threads

    def make_env() -> gymnasium.Env[Any, Any]:
        with making:
            env = context.prebuilt_envs.pop() if context.prebuilt_envs else context.blueprint.make_env()
        if meter:
            meter.watch_simulator(env)
        return env

    def make_env_runner(env: int) -> EnvRunner:
        env_runner = context.blueprint.build_env_runner(env, shared, make_env)
        if meter:
            meter.watch(env_runner, "keep_capsule", Cost.KEEPING)
        if instruments and context.blueprint.on_threads:
            instruments.watch_lane(env_runner, context.assignment.doorbells.executor_of[env])
        elif instruments:
            instruments.watch_env_runner(env_runner)
        return env_runner

    doorbells, envs = context.assignment.doorbells, context.blueprint.executor_envs[index]
    if not context.blueprint.on_threads:
        bells = Bells(doorbells.ring_actors, doorbells.ring_learner)
        env_runners = [make_env_runner(env) for env in envs]
        if instruments:
            instruments.watch_executor(env_runners)
        return Executor(env_runners, bells)

    def notify_learner() -> None:
        if meter:
            meter.read_total()  # the main thread, which does so at every turn, takes none
        doorbells.ring_learner()

    bells, jitter_seconds = (
        Bells(doorbells.ring_actors, notify_learner),
        context.blueprint.config.placement.jitter_seconds,
    )
    thread_bells = {env: bell for env in envs if isinstance(bell := doorbells.executor_of[env], ThreadBell)}
    return ThreadedExecutor(thread_bells, make_env_runner, bells, doorbells.own.ring, jitter_seconds)


def _take_turns(
    context: WorkerContext,
    shared: Shared,
    roles: list[Role],
    sleeper: Sleeper,
    meter: Meter | None,
    instruments: Instruments | None,
) -> None:
    """Work while there is work; else look once more after clearing the doorbell, then sleep until it rings."""
    jitter_seconds, exchange = context.blueprint.config.placement.jitter_seconds, shared.exchange
    turns = [Jittery(role, jitter_seconds) for role in roles] if jitter_seconds else roles
    sleeper.has_started()
    if instruments:
        instruments.have_started()
    while not exchange.stopping:
        if meter:
            meter.read_total()
        if advance_all(turns):
            sleeper.has_worked()
            continue
        sleeper.clear()
        if exchange.stopping or advance_all(turns):
            continue
        start = time.monotonic_ns()
        sleeper.sleep(lambda: "; ".join(role.waits_for() for role in roles), may_be_long=lambda: _has_finished(roles))
        if instruments:
            instruments.slept_since(start)


def _keep_to_this_process(equipment: Equipment) -> None:
    """An environment that forks must not take our descriptors along: they would outlive this process."""
    for descriptor in fields(equipment):
        os.set_inheritable(getattr(equipment, descriptor.name), False)


def _has_finished(roles: list[Role]) -> bool:
    """Whether this worker has made all its rollouts, and may wait as long as the learner takes for the last ones."""
    return any(isinstance(role, Executor | ThreadedExecutor) and role.finished for role in roles)


if __name__ == "__main__":
    main()
