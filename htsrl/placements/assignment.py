"""What one worker process hosts and holds, and how it wakes the others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from htsrl.dataflow.signals import Doorbell, ThreadBell
from htsrl.metrics.readings import counted
from htsrl.placements.blueprint import Blueprint


@dataclass(frozen=True)
class Hosted:
    """The roles of one worker, by their numbers."""

    name: str
    executor: int | None = None
    actor: int | None = None
    gradient_worker: int | None = None
    replica: int | None = None
    """The learner of this replica, where it is not the first."""
    learner: bool = False

    @property
    def learns(self) -> bool:
        return self.learner or self.replica is not None or self.gradient_worker is not None


def worker_layout(blueprint: Blueprint) -> list[Hosted]:
    """The workers of a run; the last one hosts the learner."""
    executors, actors = range(len(blueprint.executor_envs)), range(len(blueprint.actor_envs))
    if blueprint.collector is not None:
        workers = [Hosted(f"{blueprint.collector.name} {i}", executor=i) for i in executors]
    elif blueprint.acts_for_itself:
        workers = [Hosted(f"executor {i} with actor {i}", executor=i, actor=i) for i in executors]
    else:
        workers = [Hosted(f"executor {i}", executor=i) for i in executors]
        workers += [Hosted(f"actor {i}", actor=i) for i in actors]
    workers += [Hosted(f"gradient worker {i}", gradient_worker=i) for i in range(1, len(blueprint.learner_shards))]
    workers += [Hosted(f"learner of replica {i}", replica=i) for i in range(1, blueprint.num_replicas)]
    return [*workers, Hosted("learner", learner=True)]


def worker_counts(blueprint: Blueprint) -> str:
    """The processes of a run in words: `2 executors, 1 learner`."""
    hosted = worker_layout(blueprint)
    kinds = {
        "executor": sum(of.executor is not None for of in hosted),
        "actor": sum(of.actor is not None and of.executor is None for of in hosted),
        "gradient worker": sum(of.gradient_worker is not None for of in hosted),
        "learner": sum(of.learner or of.replica is not None for of in hosted),
    }
    return ", ".join(counted(number, kind) for kind, number in kinds.items() if number)


@dataclass(frozen=True)
class Doorbells:
    """Wakes other workers; its own only for an actor whose environments get on while it sleeps, on threads: else a
    worker looks around after every turn anyway."""

    own: Doorbell
    executor_of: tuple[Doorbell | ThreadBell, ...]
    """The doorbell behind which each environment's executor lives, or its thread."""
    actor_of: tuple[Doorbell, ...]
    """The doorbell behind which each environment's actor lives."""
    gradient_workers: tuple[Doorbell, ...]
    learner: Doorbell
    step_barrier: bool
    repeats: bool
    """Actors wait for the version that answered before, and the learner until a version has made its last answer."""
    on_threads: bool
    replicas: tuple[Doorbell, ...] = ()
    """Behind which the learners of other replicas than the first live."""

    def ring_actors(self, envs: Sequence[int]) -> None:
        # Under a barrier at every step, one environment's arrival can be what all actors were waiting for.
        if actors := self._asleep_actors:
            self._ring(actors.values() if self.step_barrier else [actors[env] for env in envs if env in actors])

    def ring_executors(self, envs: Sequence[int]) -> None:
        if elsewhere := self._executors_elsewhere:
            self._ring([elsewhere[env] for env in envs if env in elsewhere])
        if self.repeats:
            self.learner.ring()

    def ring_all(self) -> None:
        """All who may wait for a version."""
        self._ring([*self._executors_elsewhere.values(), *self.replicas])
        if self.repeats:
            self._ring(self._asleep_actors.values())

    def ring_gradient_workers(self) -> None:
        self._ring(self.gradient_workers)

    def ring_learner(self) -> None:
        self.learner.ring()

    def ring_learners(self) -> None:
        """All who may wait for a rollout."""
        self._ring([self.learner, *self.replicas])

    @cached_property
    def _executors_elsewhere(self) -> dict[int, Doorbell | ThreadBell]:
        return self._elsewhere(self.executor_of)

    @cached_property
    def _asleep_actors(self) -> dict[int, Doorbell | ThreadBell]:
        """Those that may sleep while this worker has something for them."""
        return dict(enumerate(self.actor_of)) if self.on_threads else self._elsewhere(self.actor_of)

    def _elsewhere(self, doorbells: Sequence[Doorbell | ThreadBell]) -> dict[int, Doorbell | ThreadBell]:
        """Those behind which another worker lives, by environment."""
        return {env: doorbell for env, doorbell in enumerate(doorbells) if doorbell.fd != self.own.fd}

    @staticmethod
    def _ring(doorbells: Collection[Doorbell | ThreadBell]) -> None:
        for doorbell in {doorbell.fd: doorbell for doorbell in doorbells}.values():
            doorbell.ring()


@dataclass(frozen=True)
class Equipment:
    """The file descriptors that a worker process inherits, whatever it will be."""

    blueprint_fd: int
    block_fd: int
    lifeline_fd: int
    report_fd: int
    dump_fd: int


@dataclass(frozen=True)
class Assignment:
    """Which of the run's workers a process becomes."""

    number: int
    hosted: Hosted
    doorbells: Doorbells
