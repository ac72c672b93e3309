"""Fits the roles of one process with what records its timeline; nothing of what they compute is looked at."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from time import monotonic_ns as now
from typing import TYPE_CHECKING, Any

from htsrl.dataflow.gradient_orders import Wait
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.placements.assignment import Hosted, worker_layout
from htsrl.placements.blueprint import Blueprint
from htsrl.roles.actor import Actor
from htsrl.roles.env_runner import Stage
from htsrl.roles.executor import Runner
from htsrl.timeline.barriers import Barriers
from htsrl.timeline.document import TrackName
from htsrl.timeline.env_clock import EnvClock
from htsrl.timeline.kinds import Kind
from htsrl.timeline.track import Track

if TYPE_CHECKING:
    from htsrl.roles.gradient_worker import GradientWorker
    from htsrl.roles.learner import Learner
    from htsrl.roles.replica_learner import ReplicaLearner

ASKED_AN_ACTOR = (Stage.HANDSHAKE, Stage.ACTION, Stage.FINAL_VALUE, Stage.LAST_VALUE)
Slept = Callable[[int, int], None]
"""Adds a sleep, from when until when, to a track."""


class Instruments:
    """The tracks of one process: its own, and one for each environment that it steps on a thread."""

    def __init__(self, blueprint: Blueprint, block: SharedArrays, number: int, has_own_work: bool = True) -> None:
        """Without work of its own, a process only keeps threads."""
        self._start_ns = now()
        self._blueprint = blueprint
        self._block = block
        self._exchange = blueprint.shared(block).exchange
        has_envs = blueprint.collector is None and bool(blueprint.executor_envs)
        has_barriers = has_envs and not blueprint.schedule.mixes_versions
        self._barriers = Barriers(block, blueprint.executor_envs) if has_barriers else None
        self._track = Track(block, number, self._start_ns) if has_own_work else None
        self._clocks: list[EnvClock] = []  # of environments that step in turn
        self._slept: Slept | None = None
        self._learner_slept: tuple[int, int] | None = None  # since its last update

    @property
    def track(self) -> Track:
        assert self._track is not None, "this process has no work of its own"
        return self._track

    def have_started(self) -> None:
        if self._track:
            self._track.add(Kind.START, self._start_ns, now())

    def slept_since(self, start: int) -> None:
        if self._slept:
            self._slept(start, now())

    def close(self) -> None:
        """Write down what is not yet."""
        if self._learner_slept:
            self.track.add(Kind.WAIT_ENVIRONMENTS, *self._learner_slept)
        if self._track:
            for clock in self._clocks:
                clock.count()
            self._track.close()

    def watch_env_runner(self, env_runner: Runner) -> None:
        self._clocks.append(self._watch_env_runner(env_runner, self.track))

    def _watch_env_runner(self, env_runner: Runner, track: Track) -> EnvClock:
        clock = EnvClock(self._block, env_runner.index, track)
        env_runner.step_timer.on_steps = clock.add_steps
        _replace(env_runner.agents, "reset", clock.timed_reset)

        def then_end_rollout(keep_capsule: Any) -> Any:
            def kept() -> None:
                start = now()
                keep_capsule()
                end = now()
                track.add(Kind.SAVE_STATE, start, end, env_runner.index)
                clock.end_rollout(env_runner.rollout - 1, end)

            return kept

        _replace(env_runner, "keep_capsule", then_end_rollout)
        return clock

    def watch_executor(self, env_runners: Sequence[Runner]) -> None:
        """One that steps its environments in turn."""
        self._slept = self._executor_slept(self.track, env_runners)

    def watch_env_thread(self, env_runner: Runner, bell: Any) -> None:
        """An environment on a thread, which is the caller's."""
        number = self._blueprint.num_workers + env_runner.index
        track = Track(self._block, number, self._start_ns, time.thread_time_ns)
        track.add(Kind.START, self._start_ns, now())
        clock = self._watch_env_runner(env_runner, track)
        slept = self._executor_slept(track, [env_runner])

        def timed(wait: Any) -> Any:
            def timed_wait() -> None:
                start = now()
                wait()
                slept(start, now())

            return timed_wait

        def written_down(close: Any) -> Any:
            def write_and_close() -> None:
                clock.count()
                track.close()
                close()

            return write_and_close

        _replace(bell, "wait", timed)
        _replace(env_runner, "close", written_down)

    def watch_collector(self, collector: Any) -> None:
        """One that steps no environments: its `collect(rollout, columns)` is inference."""
        _replace(collector, "collect", self._timed(Kind.INFERENCE, lambda rollout, columns: len(columns)))
        self._slept = lambda start, end: self.track.add(Kind.WAIT_LEARNER, start, end)

    def watch_actor(self, actor: Actor) -> None:
        for method in ("act", "value"):
            _replace(actor.answers, method, lambda call: self.track.timed_batches(call, Kind.INFERENCE))
        if not self._slept:  # else it acts for an executor in the same process, which knows more
            self._slept = lambda start, end: self.track.add(Kind.WAIT_REQUESTS, start, end)

    def watch_gradient_worker(self, gradient_worker: GradientWorker) -> None:
        _replace(gradient_worker, "carry_out", self._timed(Kind.GRADIENT))
        self._slept = lambda start, end: self.track.add(Kind.WAIT_ORDERS, start, end)

    def watch_replica_learner(self, learner: ReplicaLearner) -> None:
        if learner.finisher:
            _replace(learner.finisher, "complete", self._timed(Kind.FINISH_ROLLOUT))
        _replace(learner.gradient.shards, "take", self._timed(Kind.GRADIENT))
        _replace(learner, "learn", lambda learn: self.track.spanned(learn, Kind.LEARNING))
        self._slept = lambda start, end: self.track.add(Kind.WAIT_LEARNER, start, end)

    def watch_checkpoints(self, checkpoints: Any) -> None:
        """Before the learner takes hold of them."""
        _replace(checkpoints, "at_barrier", self._timed(Kind.CHECKPOINT))

    def watch_wait(self, wait: Wait) -> Wait:
        """For gradient workers."""
        return self.track.timed(wait, Kind.WAIT_GRADIENTS)

    def watch_wait_for_replicas(self, wait: Wait) -> Wait:
        """For the drafts of other learners."""
        return self.track.timed(wait, Kind.WAIT_LEARNER)

    def watch_learner(self, learner: Learner) -> None:
        if learner.finisher:
            _replace(learner.finisher, "complete", self._timed(Kind.FINISH_ROLLOUT))
        _replace(learner.gradient.shards, "take", self._timed(Kind.GRADIENT))
        _replace(learner, "publish", self._timed(Kind.PUBLISH))
        _replace(learner, "learn", lambda learn: self.track.spanned(learn, Kind.LEARNING))

        def make_version_in_a_span(make_version: Any) -> Any:
            def spanned() -> None:
                self._end_barrier(learner.update)
                with self.track.span(Kind.UPDATE, learner.update + 1):
                    make_version()

            return spanned

        _replace(learner, "make_version", make_version_in_a_span)
        self._slept = self._note_learners_sleep

    def _note_learners_sleep(self, start: int, end: int) -> None:
        """Every rollout wakes the learner; whom it waited for is known when all are complete."""
        self._learner_slept = (self._learner_slept or (start, end))[0], end

    def _end_barrier(self, update: int) -> None:
        """Before half of the environments are done, the learner waits for all, then for the slowest."""
        barrier = self._barriers.note(update) if self._barriers else None
        if self._learner_slept is None:
            return
        start, end = self._learner_slept
        self._learner_slept = None
        middle = end if barrier is None else min(max(barrier.median_ns, start), end)
        if start < middle:
            self.track.add(Kind.WAIT_ENVIRONMENTS, start, middle)
        if barrier and middle < end:
            self.track.add(Kind.WAIT_SLOWEST, middle, end, barrier.slowest)

    def _executor_slept(self, track: Track, env_runners: Sequence[Runner]) -> Slept:
        """Whom an executor slept for, from what its environments had to wait for."""
        acts_for_itself, version_before = self._blueprint.acts_for_itself, 0

        def slept(start: int, end: int) -> None:
            nonlocal version_before
            version, version_before_sleep = self._exchange.published_version, version_before
            version_before = version
            if not any(env_runner.stage in ASKED_AN_ACTOR for env_runner in env_runners):
                self._add_wait_for_version(track, start, end, version, version != version_before_sleep)
            elif acts_for_itself and not self._blueprint.on_threads:  # at a barrier at every step
                track.add(Kind.WAIT_SLOWEST, start, end)
            else:
                track.add(Kind.WAIT_ANSWERS, start, end)

        return slept

    def _add_wait_for_version(self, track: Track, start: int, end: int, version: int, has_come: bool) -> None:
        """Until the rollouts that it is made from were complete, it was a wait for the slowest of them."""
        if self._barriers is None or version >= self._blueprint.experiment.num_intervals:
            track.add(Kind.WAIT_LEARNER, start, end)
            return
        barrier = self._barriers.of(version - 1 if has_come else version)
        if barrier is None:  # overtaken, or not begun
            track.add(Kind.WAIT_LEARNER if has_come else Kind.WAIT_SLOWEST, start, end)
            return
        middle = min(max(barrier.last_ns, start), end)
        if start < middle:
            track.add(Kind.WAIT_SLOWEST, start, middle, barrier.slowest)
        if middle < end:
            track.add(Kind.WAIT_LEARNER, middle, end)

    def _timed(self, kind: Kind, subject_of: Callable[..., int] | None = None) -> Callable[[Any], Any]:
        track = self.track
        return lambda call: track.timed(call, kind, subject_of) if subject_of else track.timed(call, kind)


def track_names(blueprint: Blueprint) -> list[TrackName]:
    """Whose track is which."""
    all_envs = tuple(range(blueprint.experiment.num_simulators))
    if blueprint.config.placement.backend == "inline":
        return [TrackName("inline", "inline", all_envs)]
    hosted = worker_layout(blueprint)
    workers = [TrackName(worker.name, _role(worker), _envs_in_turn(blueprint, worker)) for worker in hosted]
    workers += [TrackName("", "")] * (blueprint.num_workers - len(workers))
    threads = all_envs if blueprint.on_threads else ()
    return [*workers, *(TrackName(f"environment {env}", "environment", (env,)) for env in threads)]


def _role(worker: Hosted) -> str:
    if worker.executor is not None:
        return "executor"
    if worker.actor is not None:
        return "actor"
    return "gradient worker" if worker.gradient_worker is not None else "learner"


def _envs_in_turn(blueprint: Blueprint, worker: Hosted) -> tuple[int, ...]:
    return () if worker.executor is None or blueprint.on_threads else blueprint.executor_envs[worker.executor]


def _replace(subject: Any, method: str, wrapped: Callable[[Any], Any]) -> None:
    setattr(subject, method, wrapped(getattr(subject, method)))
