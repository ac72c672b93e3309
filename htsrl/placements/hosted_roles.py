"""Builds the roles that a worker hosts, fitted with what measures them where a run is measured."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import gymnasium

from htsrl.checkpoint.of_run import background_checkpoints
from htsrl.checkpoint.snapshots import SnapshotWriter, in_order
from htsrl.dataflow.exchange import Cost
from htsrl.dataflow.gradient_orders import GradientOrders, Helpers, Wait
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.dataflow.signals import ThreadBell
from htsrl.envs.lanes.lane import LaneSimulator
from htsrl.metrics.report import UpdateReport
from htsrl.numerics import use_one_thread
from htsrl.placements.assignment import Assignment, Equipment
from htsrl.placements.blueprint import Blueprint
from htsrl.placements.instruments import Instruments
from htsrl.placements.messages import ReportWriter
from htsrl.placements.preparation import PrebuiltEnvs
from htsrl.placements.sleeper import Sleeper
from htsrl.roles.env_runner import EnvRunner
from htsrl.roles.executor import Bells, Executor
from htsrl.roles.lane_runner import LaneRunner
from htsrl.roles.meter import Meter
from htsrl.roles.role import Collector, Notify, Role
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


@dataclass(frozen=True)
class HostedRoles:
    """What builds them: the worker's place, the memory, and who measures."""

    context: WorkerContext
    block: SharedArrays
    shared: Shared
    meter: Meter | None
    """Where CPU time is measured."""
    instruments: Instruments | None
    """Where a timeline is recorded."""

    def build(self, report_writer: ReportWriter, sleeper: Sleeper) -> list[Role]:
        hosted, roles = self.context.assignment.hosted, list[Role]()
        if hosted.executor is not None:
            has_collector = self.context.blueprint.collector is not None
            roles.append(self._collector(hosted.executor) if has_collector else self._executor(hosted.executor))
        if hosted.actor is not None:
            roles.append(self._actor(hosted.actor))
        if hosted.replica is not None:
            roles.append(self._replica_learner(hosted.replica))
        if hosted.gradient_worker is not None:
            roles.append(self._gradient_worker(hosted.gradient_worker))
        if hosted.learner:
            roles.append(self._learner(report_writer, sleeper))
        return roles

    def _collector(self, index: int) -> Collector:
        """One that needs no environments."""
        use_one_thread()
        bells = Bells(lambda envs: None, self.context.assignment.doorbells.ring_learner)
        collector = self.context.blueprint.build_collector(index, self.block, self.shared, bells, self._beat_or_end())
        self._measure(collector, "collect", Cost.INFERENCE)
        if self.instruments:
            self.instruments.watch_collector(collector)
        return collector

    def _executor(self, index: int) -> Executor | ThreadedExecutor:
        blueprint, doorbells = self.context.blueprint, self.context.assignment.doorbells
        envs, make_env_runner = blueprint.executor_envs[index], self._maker_of_env_runners()
        if blueprint.on_threads:
            return self._threaded_executor(envs, make_env_runner)
        bells = Bells(doorbells.ring_actors, doorbells.ring_learners)
        make_runner = self._lane_runner if blueprint.lane else make_env_runner
        env_runners: list[Any] = [make_runner(env) for env in envs]
        if self.instruments:
            self.instruments.watch_executor(env_runners)
        return Executor(env_runners, bells)

    def _threaded_executor(
        self, envs: tuple[int, ...], make_env_runner: Callable[[int], EnvRunner]
    ) -> ThreadedExecutor:
        placement, doorbells = self.context.blueprint.config.placement, self.context.assignment.doorbells

        def notify_learner() -> None:
            if self.meter:
                self.meter.read_total()  # the main thread, which does so at every turn, takes none
            doorbells.ring_learners()

        bells = Bells(doorbells.ring_actors, notify_learner)
        thread_bells = {env: bell for env in envs if isinstance(bell := doorbells.executor_of[env], ThreadBell)}
        cap = placement.max_running
        share = None if cap is None else max(cap // len(self.context.blueprint.executor_envs), 1)
        ring = doorbells.own.ring
        return ThreadedExecutor(thread_bells, make_env_runner, bells, ring, placement.jitter_seconds, share)

    def _maker_of_env_runners(self) -> Callable[[int], EnvRunner]:
        blueprint, doorbells = self.context.blueprint, self.context.assignment.doorbells
        making = threading.Lock()  # on threads: constructors of several may not go together

        def make_env() -> gymnasium.Env[Any, Any]:
            with making:
                env = self.context.prebuilt_envs.pop() if self.context.prebuilt_envs else blueprint.make_env()
            if self.meter:
                self.meter.watch_simulator(env)
            return env

        def make_env_runner(env: int) -> EnvRunner:
            env_runner = blueprint.build_env_runner(env, self.shared, make_env)
            self._measure(env_runner, "keep_capsule", Cost.KEEPING)
            if self.instruments and blueprint.on_threads:
                self.instruments.watch_env_thread(env_runner, doorbells.executor_of[env])
            elif self.instruments:
                self.instruments.watch_env_runner(env_runner)
            return env_runner

        return make_env_runner

    def _lane_runner(self, index: int) -> LaneRunner:
        def make_lane() -> LaneSimulator:
            lane = self.context.blueprint.make_lane()
            if self.meter:
                self.meter.watch_simulator(lane)
            return lane

        lane_runner = self.context.blueprint.build_lane_runner(index, self.shared, make_lane)
        self._measure(lane_runner, "keep_capsule", Cost.KEEPING)
        if self.instruments:
            self.instruments.watch_env_runner(lane_runner)
        return lane_runner

    def _actor(self, index: int) -> Role:
        blueprint = self.context.blueprint
        if blueprint.light is None:
            use_one_thread()
        ring_executors = self.context.assignment.doorbells.ring_executors
        actor = blueprint.build_actor(index, self.shared, self.block, ring_executors)
        for policy, method in actor.answers.computations if self.meter else ():
            self._measure(policy, method, Cost.INFERENCE)
        if self.instruments:
            self.instruments.watch_actor(actor)
        return actor

    def _replica_learner(self, replica: int) -> Role:
        use_one_thread()
        ring_learner = self.context.assignment.doorbells.ring_learner
        learner = self.context.blueprint.build_replica_learner(
            replica, self.block, self.shared, ring_learner, self._beat_or_end()
        )
        self._measure_learner(learner)
        if self.instruments:
            self.instruments.watch_replica_learner(learner)
        return learner

    def _gradient_worker(self, index: int) -> Role:
        use_one_thread()
        blueprint, ring_learner = self.context.blueprint, self.context.assignment.doorbells.ring_learner
        parameters = blueprint.build_parameters(self.block)
        gradient_worker = blueprint.build_gradient_worker(
            index, self.block, self.shared, parameters, ring_learner, self._beat_or_end()
        )
        self._measure(gradient_worker, "carry_out", Cost.LEARNING)
        if self.instruments:
            self.instruments.watch_gradient_worker(gradient_worker)
        return gradient_worker

    def _learner(self, report_writer: ReportWriter, sleeper: Sleeper) -> Role:
        use_one_thread()
        blueprint, doorbells = self.context.blueprint, self.context.assignment.doorbells
        parameters = blueprint.build_parameters(self.block)
        report = self.meter.read_total_before(report_writer.update) if self.meter else report_writer.update
        checkpoints = background_checkpoints(
            blueprint.config, self.block, self.shared, report_writer.checkpoint, self._beat()
        )
        self._measure(checkpoints, "at_barrier", Cost.KEEPING)
        if self.instruments:
            self.instruments.watch_checkpoints(checkpoints)
        self.context.last_things.callback(checkpoints.finish)
        snapshots = SnapshotWriter(blueprint.config, parameters.module)
        wait: Wait = sleeper.sleep_until
        wait_for_replicas: Wait = sleeper.sleep_until
        if self.instruments:
            wait = self.instruments.watch_wait(sleeper.sleep_until)
            wait_for_replicas = self.instruments.watch_wait_for_replicas(sleeper.sleep_until)
        helpers = Helpers(GradientOrders(self.block), doorbells.ring_gradient_workers, wait)
        learner = blueprint.build_learner(
            self.block,
            self.shared,
            parameters,
            doorbells.ring_all,
            _last_after(checkpoints.finish, report),
            in_order(checkpoints.at_barrier, snapshots.at_barrier),
            helpers if len(blueprint.learner_shards) > 1 else None,
            self._beat_or_end(),
            wait_for_replicas,
        )
        self._measure_learner(learner)
        if self.instruments:
            self.instruments.watch_learner(learner)
        return learner

    def _measure_learner(self, learner: Any) -> None:
        self._measure(learner, "learn", Cost.LEARNING)
        if learner.finisher:
            self._measure(learner.finisher, "complete", Cost.INFERENCE)

    def _measure(self, subject: Any, method: str, cost: Cost) -> None:
        if self.meter:
            self.meter.watch(subject, method, cost)

    def _beat(self) -> Notify:
        return self.shared.exchange.heartbeat(self.context.assignment.number)

    def _beat_or_end(self) -> Notify:
        """In the middle of an update: where the run stops, nobody will need the rest of it."""
        beat = self._beat()

        def beat_or_end() -> None:
            beat()
            if self.shared.exchange.stopping:
                sys.exit()

        return beat_or_end


def _last_after(finish: Notify, report: Callable[[UpdateReport], None]) -> Callable[[UpdateReport], None]:
    """Reports as they come; before the last, at which the supervisor ends this process, `finish`."""

    def report_in_order(update: UpdateReport) -> None:
        if update.finished:
            finish()
        report(update)

    return report_in_order
