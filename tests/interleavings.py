"""Executors or generators, actors, learners and gradient workers in one process, in turns in the middle of their work.

When one is killed, shared memory stays as it is, all else is gone, and a new one takes its place: as with processes,
but many times a second, and each time the same.
"""

from __future__ import annotations

import random
import re
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import htsrl
from htsrl import Config, Experiment, Placement
from htsrl.dataflow.gradient_orders import GradientOrders, Helpers
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.digest import Link, first_difference
from htsrl.metrics.report import UpdateReport
from htsrl.numerics import single_threaded
from htsrl.placements.blueprint import Blueprint
from htsrl.placements.survey import draw_blueprint
from htsrl.roles.executor import NO_BELLS
from htsrl.roles.role import Role

PACKAGE = Path(htsrl.__file__).parent
WATCHED = {
    *map(str, (PACKAGE / "roles").glob("*.py")),
    *(str(PACKAGE / file) for file in ("dataflow/storage.py", "envs/agents.py", "envs/observing.py")),
    *(
        str(PACKAGE / file)
        for file in ("algorithms/ppo/algorithm.py", "algorithms/objective.py", "algorithms/gradient.py")
    ),
    *(str(PACKAGE / file) for file in ("dataflow/gradient_orders.py", "dataflow/replicas.py", "learners/average.py")),
    *(
        str(PACKAGE / "language" / f"{file}.py")
        for file in ("generator", "generation", "episode_work", "play", "finisher")
    ),
    str(PACKAGE / "language/algorithms/minibatches.py"),
}
"""The files at whose lines others may take over."""
PACES = (0.001, 0.03, 1.0)
"""How often one is chosen: some stand still while others make whole rollouts."""
YIELD_ODDS = 0.03
"""At every line."""
PACE_ODDS = 0.05
"""Of a new pace, whenever it yields."""
KILL_ODDS = 0.003
"""At every turn."""
MAX_TURNS = 300_000
MAX_RUNS = 20
"""In which everyone wanted dies: whose turn a kill falls on depends on the processor's numerics, too."""
TURN_SECONDS = 120
"""No turn takes that long; one that does waits for a lock of somebody who stands still."""


def blueprint_of(experiment: Experiment, verify_storages: bool = False) -> Blueprint:
    """With as many gradient workers as there are shards for them to take."""
    placement = Placement(
        num_executors=2,
        num_actors=2,
        learner_workers=experiment.gradient_shards if experiment.num_replicas == 1 else 1,
        verify_storages=verify_storages,
        progress="off",
    )
    with single_threaded():
        return draw_blueprint(Config(experiment, placement))


class Company:
    """Whoever works in a run that has just begun, to be built and built again over its memory."""

    def __init__(self, blueprint: Blueprint) -> None:
        self.block = block = SharedArrays(blueprint.block_specs())
        self._blueprint = blueprint
        self._shared = blueprint.shared(block)
        self._reports: dict[int, UpdateReport] = {}
        for replica in range(blueprint.num_replicas):
            blueprint.build_parameters(block, replica=replica).initialise(blueprint.build_policy())
        name = blueprint.collector.name if blueprint.collector else "executor"
        self.executors = {f"{name} {i}": partial(self._executor, i) for i in range(len(blueprint.executor_envs))}
        self.actors = {f"actor {i}": partial(self._actor, i) for i in range(len(blueprint.actor_envs))}
        helpers = range(1, len(blueprint.learner_shards))
        self.gradient_workers = {f"gradient worker {i}": partial(self._gradient_worker, i) for i in helpers}
        others: dict[str, Callable[[], Role]] = {**self.executors, **self.actors, **self.gradient_workers}
        for replica in range(1, blueprint.num_replicas):
            others[f"learner of replica {replica}"] = partial(self._replica_learner, replica)
        self.builders = {**others, "learner": self._learner}

    @property
    def has_finished(self) -> bool:
        return any(report.finished for report in self._reports.values())

    @property
    def links(self) -> list[Link]:
        """The digest."""
        return [self._reports[version].link for version in sorted(self._reports)]

    def publish_what_was_reported(self) -> None:
        """The supervisor does, of a learner that has died."""
        exchange = self._shared.exchange
        exchange.published_version = max([exchange.published_version, *self._reports])

    def _executor(self, index: int) -> Role:
        if self._blueprint.collector is not None:
            return self._blueprint.build_collector(index, self.block, self._shared, NO_BELLS)
        return self._blueprint.build_executor(index, self._shared, NO_BELLS)

    def _actor(self, index: int) -> Role:
        return self._blueprint.build_actor(index, self._shared, self.block, executors=lambda envs: None)

    def _gradient_worker(self, index: int) -> Role:
        parameters = self._blueprint.build_parameters(self.block)
        return self._blueprint.build_gradient_worker(index, self.block, self._shared, parameters, learner=lambda: None)

    def _replica_learner(self, replica: int) -> Role:
        return self._blueprint.build_replica_learner(replica, self.block, self._shared, learner=lambda: None)

    def _learner(self) -> Role:
        helpers = Helpers(GradientOrders(self.block), lambda: None, look_again_and_again)
        return self._blueprint.build_learner(
            self.block,
            self._shared,
            self._blueprint.build_parameters(self.block),
            executors=lambda: None,
            report=lambda report: self._reports.update({report.version: report}),
            at_barrier=lambda update: None,
            helpers=helpers if self.gradient_workers else None,
            wait_for_replicas=look_again_and_again,
        )


def look_again_and_again(it_is_so: Callable[[], bool], waits_for: Callable[[], str]) -> None:
    """The lines of the look are watched, so others take over in between."""
    while not it_is_so():
        pass


class Killed(BaseException):
    """Raised in a thread in place of SIGKILL; nobody catches it before the thread's end."""


class Worker:
    """A thread that builds a role and gives it turn after turn, from one line to another, as far as it is let."""

    def __init__(self, name: str, build: Callable[[], Role], draw: random.Random) -> None:
        self.name = name
        self.pace = draw.choice(PACES)
        self.error: BaseException | None = None
        self._build = build
        self._draw = draw
        self._doomed = False
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)
        self._thread.start()

    def run_on(self) -> None:
        """Let it run until it yields."""
        self._go.release()
        if not self._back.acquire(timeout=TURN_SECONDS):
            raise AssertionError(f"{self.name} does not come back:\n{self._stack()}")
        if self.error:
            raise self.error

    def kill(self) -> None:
        self._doomed = True
        self._go.release()
        self._thread.join(TURN_SECONDS)
        assert not self._thread.is_alive(), f"{self.name} cannot be killed:\n{self._stack()}"

    def _stack(self) -> str:
        assert self._thread.ident is not None
        return "".join(traceback.format_stack(sys._current_frames().get(self._thread.ident)))

    def _live(self) -> None:
        try:
            self._wait_for_a_turn()
            sys.settrace(self._trace)
            role = self._build()
            while True:
                role.advance()
                self._yield()
        except Killed:
            pass
        except BaseException as error:
            self.error = error
            self._back.release()

    def _yield(self) -> None:
        if self._draw.random() < PACE_ODDS:
            self.pace = self._draw.choice(PACES)
        self._back.release()
        self._wait_for_a_turn()

    def _wait_for_a_turn(self) -> None:
        self._go.acquire()
        if self._doomed:
            raise Killed

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._trace_lines if frame.f_code.co_filename in WATCHED else None

    def _trace_lines(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and self._draw.random() < YIELD_ODDS:
            self._yield()
        return self._trace_lines


def work_in_any_order(blueprint: Blueprint, seed: int, kill_odds: float) -> tuple[list[Link], list[str]]:
    """A run whose every turn and kill is a function of the seed; returns its digest, and who was killed."""
    draw, kills = random.Random(seed), list[str]()
    with single_threaded():
        company = Company(blueprint)
        workers = {name: Worker(name, build, draw) for name, build in company.builders.items()}
        try:
            for _ in range(MAX_TURNS):
                (name,) = draw.choices(list(workers), [worker.pace for worker in workers.values()])
                if draw.random() >= kill_odds:
                    workers[name].run_on()
                else:
                    kills.append(name)
                    workers[name].kill()
                    if name == "learner":
                        company.publish_what_was_reported()
                    workers[name] = Worker(name, company.builders[name], draw)
                if company.has_finished:
                    return company.links, kills
            raise AssertionError(f"no end after {MAX_TURNS} turns and kills of {kills}")
        finally:
            for worker in workers.values():
                worker.kill()


def assert_kills_change_nothing(
    blueprint: Blueprint, expected: list[Link], wanted: Mapping[str, int], first_seed: int = 0, min_runs: int = 1
) -> None:
    """Runs with kills, until everyone wanted (by name, or for all of a kind without its number) died so often."""
    killed = Counter[str]()
    for runs, seed in enumerate(range(first_seed, first_seed + MAX_RUNS), 1):
        links, kills = work_in_any_order(blueprint, seed, KILL_ODDS)
        assert first_difference(links, expected) is None, f"seed {seed}, kills of {kills}"
        for name in kills:
            killed.update({name, re.sub(r" \d+$", "", name)})
        if runs >= min_runs and all(killed[name] >= times for name, times in wanted.items()):
            return
    raise AssertionError(f"{MAX_RUNS} runs from seed {first_seed} on killed {dict(killed)}, {dict(wanted)} was wanted")
