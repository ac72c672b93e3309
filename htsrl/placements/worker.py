"""A worker process: builds its roles from the blueprint and drives them until the run stops.

Started as `python -m htsrl.placements.worker PARENT_PID`, with its assignment on standard input. A fresh interpreter
rather than a fork: no inherited locks, threads or file descriptors, and no second run of the user's script. With
`--spare` it first imports all that any worker could need, and then waits for a worker to die.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import traceback

import cloudpickle

from htsrl.checkpoint.of_run import background_checkpoints
from htsrl.dataflow.exchange import Cost
from htsrl.dataflow.memory import SharedArrays
from htsrl.dataflow.shared import Shared
from htsrl.dataflow.signals import Waiter
from htsrl.envs.make import import_modules
from htsrl.errors import HtsrlError, WaitTimeout
from htsrl.parent_death import die_with_parent, parent_is_stopped
from htsrl.placements.assignment import Assignment
from htsrl.placements.messages import Mouthpiece
from htsrl.placements.worker_process import DUMP_SIGNAL
from htsrl.roles.executor import Executor
from htsrl.roles.meter import Meter
from htsrl.roles.role import Jittery, Role, advance_all

# Time for the supervisor to find out who hangs, start it again, and find out that it does so again.
MOST_WAITS_IN_VAIN = 3


def main() -> None:
    die_with_parent(int(sys.argv[1]))
    if "--spare" in sys.argv:
        _import_what_computes()
    try:
        assignment: Assignment = cloudpickle.load(sys.stdin.buffer)
    except EOFError:  # a spare that was not needed
        return
    _keep_to_this_process(assignment)
    faulthandler.register(DUMP_SIGNAL, file=assignment.dump_fd)
    mouthpiece = Mouthpiece(assignment.report_fd)
    try:
        _work(assignment, mouthpiece)
    except HtsrlError as error:
        mouthpiece.failure(error, str(error))
        sys.exit(1)
    except Exception as error:
        mouthpiece.failure(error, f"{assignment.hosted.name} (pid {os.getpid()}) failed:\n{traceback.format_exc()}")
        sys.exit(1)


def _import_what_computes() -> None:
    """All of it: an optimizer imports more when the first one is made."""
    import torch

    import htsrl.roles.actor
    import htsrl.roles.learner  # noqa: F401

    torch.optim.Adam([torch.zeros(1)], fused=True)


def _work(assignment: Assignment, mouthpiece: Mouthpiece) -> None:
    import_modules(assignment.blueprint.experiment.imports)
    memory = SharedArrays(assignment.blueprint.memory_specs(), assignment.memory_fd)
    shared = assignment.blueprint.shared(memory)
    measures = assignment.blueprint.config.placement.measure_costs
    meter = Meter(shared.exchange.cpu_seconds[assignment.number]) if measures else None
    roles = _build_roles(assignment, memory, shared, mouthpiece, meter)
    _take_turns(assignment, shared, roles, meter)
    for role in roles:
        if isinstance(role, Executor):
            role.close()


def _build_roles(
    assignment: Assignment, memory: SharedArrays, shared: Shared, mouthpiece: Mouthpiece, meter: Meter | None
) -> list[Role]:
    hosted, blueprint, doorbells = assignment.hosted, assignment.blueprint, assignment.doorbells
    roles: list[Role] = []
    if hosted.executor is not None:
        roles.append(
            blueprint.build_executor(hosted.executor, shared, doorbells.ring_actors, doorbells.ring_learner, meter)
        )
    if hosted.actor is not None or hosted.learner:
        from htsrl.numerics import use_one_thread

        use_one_thread()
        parameters = blueprint.build_parameters(memory)
        if meter:
            for policy in parameters.modules:
                meter.watch(policy, "decide", Cost.INFERENCE)
        if hosted.actor is not None:
            roles.append(blueprint.build_actor(hosted.actor, shared, parameters, doorbells.ring_executors))
        if hosted.learner:
            report = meter.read_total_before(mouthpiece.update) if meter else mouthpiece.update
            checkpoints = background_checkpoints(blueprint.config, memory, shared, mouthpiece.checkpoint)
            if meter:
                meter.watch(checkpoints, "at_barrier", Cost.KEEPING)
            wake = doorbells.ring_all_executors
            learner = blueprint.build_learner(memory, shared, parameters, wake, report, checkpoints.at_barrier)
            if meter:
                meter.watch(learner, "learn", Cost.LEARNING)
            roles.append(learner)
    return roles


def _take_turns(assignment: Assignment, shared: Shared, roles: list[Role], meter: Meter | None) -> None:
    """Work while there is work; else look once more after clearing the doorbell, then sleep until it rings."""
    placement = assignment.blueprint.config.placement
    turns = [Jittery(role, placement.jitter_seconds) for role in roles] if placement.jitter_seconds else roles
    exchange, number = shared.exchange, assignment.number
    waiter = Waiter(assignment.doorbells.own, assignment.lifeline_fd)
    waiter.waited_seconds = float(exchange.waited_seconds[number])
    exchange.naps[number] += 2 - exchange.naps[number] % 2  # whoever worked here before may have died in its sleep
    in_vain = 0
    while not exchange.stopping:
        if meter:
            meter.read_total()
        if advance_all(turns):
            in_vain = 0
            continue
        waiter.clear()
        if exchange.stopping or advance_all(turns):
            continue
        pulse = exchange.pulse()
        exchange.naps[number] += 1
        was_rung = waiter.wait(placement.deadline_seconds)
        exchange.naps[number] += 1
        all_stand_still = pulse == exchange.pulse() and not parent_is_stopped()
        in_vain = in_vain + 1 if all_stand_still and not was_rung and not _has_finished(roles) else 0
        exchange.waited_seconds[number] = waiter.waited_seconds
        if in_vain == MOST_WAITS_IN_VAIN:
            raise WaitTimeout(
                f"{assignment.hosted.name} (pid {os.getpid()}) waited {in_vain} times deadline_seconds="
                f"{placement.deadline_seconds:g} for {'; '.join(role.waits_for() for role in roles)}"
            )


def _keep_to_this_process(assignment: Assignment) -> None:
    """An environment that forks must not take our descriptors along: they would outlive this process."""
    for fd in (assignment.memory_fd, assignment.lifeline_fd, assignment.report_fd, assignment.dump_fd):
        os.set_inheritable(fd, False)


def _has_finished(roles: list[Role]) -> bool:
    """Whether this worker has made all its rollouts, and may wait as long as the learner takes for the last ones."""
    return any(isinstance(role, Executor) and role.finished for role in roles)


if __name__ == "__main__":
    main()
