"""The supervisor: starts the workers, listens to them, starts those that die again, and ends them all."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from htsrl.checkpoint.background import Written
from htsrl.dataflow.exchange import COMING_BACK
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.dataflow.signals import Doorbell, ThreadBell
from htsrl.errors import EnvironmentFailure, HtsrlError, ObserverFailed, PeerDied, StopRequested, UnclearCrash
from htsrl.metrics.report import UpdateReport
from htsrl.placements.assignment import Assignment, Doorbells, worker_layout
from htsrl.placements.blueprint import Blueprint, Envs, write_blueprint
from htsrl.placements.fork_server import fork_servers
from htsrl.placements.messages import error_of, report_of, written_of
from htsrl.placements.restarts import Death, Restarts
from htsrl.placements.signs import Signs, Watched
from htsrl.placements.spares import Spares
from htsrl.placements.vigil import Vigil
from htsrl.placements.worker_process import Inheritance, WorkerProcess, describe_exit
from htsrl.processes.interrupts import uninterrupted
from htsrl.roles.shared import Shared

GRACE_SECONDS = 0.5


@dataclass(frozen=True)
class Listeners:
    """Who is told what happens in a run."""

    on_report: Callable[[UpdateReport], None]
    on_checkpoint: Callable[[Written], None]
    on_restart: Callable[[str], None]
    on_replaced: Callable[[str], None] = lambda name: None
    """A worker, by its name, was started again."""
    on_line: Callable[[str], None] = lambda line: None
    """What the user should read."""
    on_other_numerics: Callable[[int, Sequence[str]], None] = lambda version, changes: None
    """From this version on, something else computes too, which differs so."""
    on_look: Callable[[], None] = lambda: None
    """Whenever the supervisor looks around, at least about once a second."""


class Elsewhere(Protocol):
    """Workers of a run that live on other machines, and what passes between them and those that live here."""

    @property
    def doorbell(self) -> Doorbell:
        """Rung for any of them, and by whoever brings news of them."""

    @property
    def workers(self) -> Collection[int]:
        """Their numbers."""

    def advance(self) -> bool:
        """Pass on what there is to pass on, once the doorbell was cleared; True when workers here may have work now."""

    @property
    def run_is_over(self) -> bool:
        """Whether those elsewhere say so; the learner's side says it in a report."""


class Supervisor:
    """Watches every process of a run that lives on this machine."""

    def __init__(
        self, blueprint: Blueprint, block: SharedArrays, listeners: Listeners, elsewhere: Elsewhere | None = None
    ) -> None:
        placement = blueprint.config.placement
        self._blueprint = blueprint
        self._elsewhere = elsewhere
        self._blueprint_fd = write_blueprint(blueprint)
        self._block = block
        self._listeners = listeners
        self._shared: Shared = blueprint.shared(block)
        self._hosted = worker_layout(blueprint)
        away = elsewhere.workers if elsewhere else ()
        self._here = [number for number in range(len(self._hosted)) if number not in away]
        self._doorbells = [
            elsewhere.doorbell if elsewhere and number in away else Doorbell.create()
            for number in range(len(self._hosted))
        ]
        num_threads = blueprint.experiment.num_envs if blueprint.on_threads else 0
        envs_here = [env for number in self._here for env in self._stepped_envs(number)] if num_threads else []
        self._thread_bells = {env: ThreadBell.create() for env in envs_here}
        watched = [None if number in away else self._watched(number) for number in range(len(self._hosted))]
        self._signs = Signs(self._shared.exchange, watched, num_threads, self._may_go_on)
        # Only this process holds the writing end, so its closing tells the workers that we are gone.
        self._lifeline_fd, self._our_life_fd = os.pipe()
        self._workers: dict[int, WorkerProcess] = {}  # by number
        self._reported_version = 0
        self._failures: dict[int, HtsrlError] = {}  # what workers said of their end, by worker
        self._details_shown: list[str] = []  # below the headline of the last death that was tolerated
        self._spares = Spares(lambda: self._launch(spare=True), self._drop)
        self._poll = select.poll()
        if elsewhere:
            self._poll.register(elsewhere.doorbell.fd, select.POLLIN)
        self._vigil = Vigil(placement.deadline_seconds, len(self._signs))
        self._crash_points: dict[int, Hashable] = {}  # the steps that may be to blame for crashes
        self.restarts = Restarts(placement.restart_workers)
        # On an island without torch a worker starts as quickly as a spare takes over.
        needs_spares = elsewhere is None or any(self._computes(number) for number in self._here)
        self._has_spares = self.restarts.allowed and needs_spares

    def start(self) -> None:
        if sys.platform == "linux":
            fork_servers.make_ready({*map(self._computes, self._here)} if self._elsewhere else (False, True))
        for number in self._here:
            with uninterrupted():
                self._workers[number] = self._launch(self._computes(number))
            self._set_to_work(number)

    def watch(self) -> None:
        """Pass on reports until the learner has finished; raise what the run cannot continue after."""
        while True:
            ready = {fd for fd, _ in self._poll.poll(self._vigil.pause_seconds * 1000)}
            for number, worker in list(self._workers.items()):
                if not worker.fds & ready:
                    continue
                if self._listen_to(number):
                    return
                if worker.has_ended or worker.report_reader.closed or number in self._failures:
                    with uninterrupted():
                        if self._handle_death(number):
                            return
            if self._has_spares:
                with uninterrupted():
                    self._spares.look_after()
            self._look_for_hangs()
            self._listeners.on_look()
            if self._elsewhere and self._exchange_with(self._elsewhere):
                return

    def _exchange_with(self, elsewhere: Elsewhere) -> bool:
        """True when the run is over."""
        elsewhere.doorbell.clear()
        if elsewhere.advance():
            self._ring_all()
        return elsewhere.run_is_over

    def _ring_all(self) -> None:
        for doorbell in self._bells_here:
            doorbell.ring()

    def stop(self) -> None:
        """Ask all workers to end, then make them; what the learner has still reported is passed on."""
        self._shared.exchange.stop()
        self._ring_all()
        workers = [*self._workers.values(), *([self._spares.process] if self._spares.process else [])]
        try:
            self._wait_for_ends()
        finally:
            for worker in workers:
                worker.end()
            for number in self._workers:
                self._listen_to(number)
            for worker in workers:
                worker.close()
            doorbells = [doorbell.fd for doorbell in self._bells_here]
            for fd in (self._blueprint_fd, self._lifeline_fd, self._our_life_fd, *doorbells):
                os.close(fd)

    def _wait_for_ends(self) -> None:
        """For a moment, and for as long as the learner gets on with a checkpoint that was due."""
        beats, deadline = self._shared.exchange.beats.tobytes(), time.monotonic() + GRACE_SECONDS
        while time.monotonic() < deadline and not all(worker.has_ended for worker in self._workers.values()):
            time.sleep(GRACE_SECONDS / 100)
            if (now := self._shared.exchange.beats.tobytes()) != beats:
                beats, deadline = now, time.monotonic() + GRACE_SECONDS

    @property
    def _bells_here(self) -> list[Doorbell | ThreadBell]:
        """Those of workers on this machine, and of their threads."""
        return [*(self._doorbells[number] for number in self._here), *self._thread_bells.values()]

    @property
    def _all_bells(self) -> list[Doorbell | ThreadBell]:
        return [*self._bells_here, *([self._elsewhere.doorbell] if self._elsewhere else [])]

    def _computes(self, number: int) -> bool:
        hosted = self._hosted[number]
        acts_with_torch = hosted.actor is not None and self._blueprint.light is None
        collects = hosted.executor is not None and self._blueprint.collector is not None
        return hosted.learns or acts_with_torch or collects

    def _launch(self, computes: bool = True, spare: bool = False) -> WorkerProcess:
        doorbells = [doorbell.fd for doorbell in self._all_bells]
        inheritance = Inheritance(self._blueprint_fd, self._block.fd, self._lifeline_fd, doorbells)
        collector = self._blueprint.collector
        worker = WorkerProcess(inheritance, computes, spare, collector.libraries if collector else ())
        for fd in worker.fds:
            self._poll.register(fd, select.POLLIN | select.POLLHUP)
        return worker

    def _set_to_work(self, number: int) -> None:
        worker = self._workers[number]
        self._signs.begin(number)
        worker.assign(Assignment(number, self._hosted[number], self._doorbells_for(number)))

    def _listen_to(self, number: int) -> bool:
        """Act on a worker's messages; True when training is over."""
        wish: StopRequested | ObserverFailed | None = None
        with uninterrupted():  # a message that was read and not passed on would be missing from the digest
            for message in self._workers[number].report_reader.read():
                if message["kind"] == "failure":
                    self._failures[number] = error_of(message)
                elif message["kind"] == "checkpoint":
                    self._listeners.on_checkpoint(written_of(message))
                elif message["kind"] == "update":
                    report = report_of(message)
                    self._reported_version = report.version
                    try:
                        self._listeners.on_report(report)
                    except (StopRequested, ObserverFailed) as error:
                        wish = wish or error  # granted once all that was read with it is passed on
                    if report.finished and wish is None:
                        return True
        if wish is not None:
            raise wish
        return False

    def _handle_death(self, number: int) -> bool:
        """A worker has died: start it again, or raise why not; True when it turns out that training is over."""
        worker, hosted = self._workers[number], self._hosted[number]
        worker.end()
        if self._listen_to(number):
            return True
        if hosted.learner:  # a version is whole when it is reported; a learner that died right then had only to say so
            exchange = self._shared.exchange
            exchange.published_version = max(exchange.published_version, self._reported_version)
        by_sigkill = worker.exit_code == -signal.SIGKILL and number not in self._failures
        error = self._failures.pop(number, None) or self._death_report(number)
        suspect = self._stepped(number) if by_sigkill else None
        env = error.env if isinstance(error, EnvironmentFailure) else suspect
        if fatal := self.restarts.judge(Death(number, self._point(number, env), by_sigkill, error, suspect)):
            fatal.details_were_shown = str(fatal).splitlines()[1:] == self._details_shown != []
            raise fatal
        headline, *details = str(error).splitlines()
        self._details_shown = details
        self._listeners.on_restart("\n".join([f"{headline}; {hosted.name} is started again", *details]))
        self._listeners.on_replaced(hosted.name)
        self._replace(number)
        return False

    def _replace(self, number: int) -> None:
        dead = self._workers[number]
        self._workers[number] = self._spares.take() or self._launch(self._computes(number))
        self._drop(dead)
        inside = self._shared.exchange.inside
        for env in self._stepped_envs(number):
            inside[env] += inside[env] % 2
        self._vigil.forget(number)  # the signs of environments change with the words above
        self._set_to_work(number)
        for doorbell in self._all_bells:  # the dead may have written a word and not rung
            doorbell.ring()

    def _drop(self, worker: WorkerProcess) -> None:
        for fd in worker.fds:
            self._poll.unregister(fd)
        worker.close()

    def _may_go_on(self, env: int) -> bool:
        return self._shared.may_go_on(env, self._blueprint.num_rollouts(env))

    def _look_for_hangs(self) -> None:
        for place in self._vigil.overdue(time.monotonic(), self._signs.read()):
            number, env = self._signs.subject(place)
            if number not in self._failures:
                self._end_a_hang(number, self._inside(number)[:1] if env is None else [env])

    def _end_a_hang(self, number: int, inside: Sequence[int]) -> None:
        """Of a worker, or of the environment that it is inside of; the rest is done when its death is noticed."""
        worker, hosted = self._workers[number], self._hosted[number]
        who = f"environment {inside[0]} of {hosted.name}" if inside else hosted.name
        seconds = self._blueprint.config.placement.deadline_seconds
        text = f"{who} (pid {worker.pid}) got nowhere for deadline_seconds={seconds:g}; it was in\n{worker.stack()}"
        self._failures.setdefault(number, EnvironmentFailure(text, inside[0]) if inside else PeerDied(text))
        worker.end()

    def _point(self, number: int, env: int | None) -> Hashable:
        """How far a worker, or the environment that it died in, had come; the same when it comes there again."""
        exchange, envs = self._shared.exchange, list(self._envs_of(number))
        if env is not None:
            return self._env_point(env)
        return exchange.published_version, exchange.completed_rollouts[envs].tobytes()

    def _env_point(self, env: int) -> Hashable:
        exchange = self._shared.exchange
        return env, int(exchange.completed_rollouts[env]), int(exchange.requests[env])

    def _death_report(self, number: int) -> HtsrlError:
        worker, hosted = self._workers[number], self._hosted[number]
        update = self._shared.exchange.published_version
        source = self._shared.source
        full = source.is_ready(update)
        learner, did = "it" if hosted.learner else "the learner", "read" if full else "waited for"
        text = (
            f"{hosted.name} (pid {worker.pid}) {describe_exit(worker.exit_code)} while {learner} {did} "
            f"{source.describe(update)}"
        )
        inside = self._inside(number)
        if not inside or worker.exit_code == -signal.SIGKILL:
            return PeerDied(text)
        suspects = self._suspects(inside)
        if len(suspects) > 1:
            return UnclearCrash(f"in one of environments {suspects}, {text}")
        return EnvironmentFailure(f"in environment {suspects[0]}, {text}", suspects[0])

    def _suspects(self, inside: Sequence[int]) -> list[int]:
        """Of the environments in which a worker crashed, on threads perhaps many, those that were in the very same step
        each time."""
        points = {env: self._env_point(env) for env in inside}
        again = {env: point for env, point in points.items() if self._crash_points.get(env) == point}
        self._crash_points = again or points
        return list(self._crash_points)

    def _inside(self, number: int) -> list[int]:
        """The environments that a worker is in the middle of, or was when it ended; on threads, that may be many."""
        return [env for env in self._stepped_envs(number) if self._shared.exchange.inside[env] % 2]

    def _stepped(self, number: int) -> int | None:
        """The environment that a worker was in when it ended, if that is known, and unless it was being brought back,
        which takes long."""
        inside = [env for env in self._inside(number) if self._shared.exchange.episodes[env][1] != COMING_BACK]
        return inside[0] if len(inside) == 1 else None

    def _stepped_envs(self, number: int) -> Envs:
        executor = self._hosted[number].executor
        return () if executor is None else self._blueprint.executor_envs[executor]

    def _watched(self, number: int) -> Watched:
        stepped = self._stepped_envs(number)
        thread_bells = [self._thread_bells[env] for env in stepped] if self._thread_bells else []
        return Watched(self._envs_of(number), stepped, [self._doorbells[number], *thread_bells])

    def _envs_of(self, number: int) -> Envs:
        """The environments that a worker steps or acts for."""
        hosted, blueprint = self._hosted[number], self._blueprint
        if hosted.executor is not None:
            return blueprint.executor_envs[hosted.executor]
        return () if hosted.actor is None else blueprint.actor_envs[hosted.actor]

    def _doorbells_for(self, number: int) -> Doorbells:
        num_simulators = self._blueprint.experiment.num_simulators
        executor_of: list[Doorbell | ThreadBell] = [self._doorbells[0]] * num_simulators
        actor_of = [self._doorbells[0]] * num_simulators
        for other, (hosted, doorbell) in enumerate(zip(self._hosted, self._doorbells, strict=True)):
            for env in self._envs_of(other):
                if hosted.executor is not None:
                    executor_of[env] = self._thread_bells.get(env, doorbell)
                if hosted.actor is not None:
                    actor_of[env] = doorbell
        gradient_workers = [
            doorbell
            for hosted, doorbell in zip(self._hosted, self._doorbells, strict=True)
            if hosted.gradient_worker is not None
        ]
        return Doorbells(
            own=self._doorbells[number],
            executor_of=tuple(executor_of),
            actor_of=tuple(actor_of),
            gradient_workers=tuple(gradient_workers),
            replicas=tuple(
                bell for bell, at in zip(self._doorbells, self._hosted, strict=True) if at.replica is not None
            ),
            learner=self._doorbells[-1],
            step_barrier=self._shared.schedule.step_barrier,
            repeats=self._shared.schedule.repeats,
            on_threads=self._blueprint.on_threads,
        )
