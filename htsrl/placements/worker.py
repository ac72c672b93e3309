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
import time
import traceback
from dataclasses import fields

import cloudpickle

from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.dataflow.signals import Waiter
from htsrl.envs.make import import_modules
from htsrl.errors import HtsrlError
from htsrl.placements.assignment import Assignment, Equipment
from htsrl.placements.blueprint import read_blueprint
from htsrl.placements.fork_server import FLAG
from htsrl.placements.fork_serving import serve
from htsrl.placements.hosted_roles import HostedRoles, WorkerContext
from htsrl.placements.instruments import Instruments
from htsrl.placements.messages import ReportWriter
from htsrl.placements.preparation import PrebuiltEnvs, prepare
from htsrl.placements.sleeper import Sleeper
from htsrl.placements.worker_process import DUMP_SIGNAL, SPARE
from htsrl.processes.parent_death import die_with_parent
from htsrl.processes.process_name import name_this_process
from htsrl.roles.meter import Meter
from htsrl.roles.role import Collector, Jittery, Role, advance_all
from htsrl.roles.shared import Shared
from htsrl.roles.threaded_executor import ThreadedExecutor


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
        blueprint = read_blueprint(equipment.blueprint_fd, assignment.hosted.learns)
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
    roles = HostedRoles(context, block, shared, meter, instruments).build(report_writer, sleeper)
    while context.prebuilt_envs:
        context.prebuilt_envs.pop().close()
    with context.last_things:
        if instruments:
            context.last_things.callback(instruments.close)
        _take_turns(context, shared, roles, sleeper, meter, instruments)
    for role in roles:
        if isinstance(role, Collector):
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
    return any(isinstance(role, Collector) and role.finished for role in roles)


if __name__ == "__main__":
    main()
