"""The real roles of a run in one process, for tests that give them their turns in an order of their own."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from htsrl import Config, Experiment, Placement
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.digest import Link
from htsrl.metrics.report import UpdateReport
from htsrl.numerics import single_threaded
from htsrl.placements.survey import draw_blueprint
from htsrl.roles.executor import NO_BELLS
from htsrl.roles.role import Role
from htsrl.roles.shared import Shared
from htsrl.schedules.schedule import Schedule


class Roles:
    """An executor per environment, two actors and the learner, over storages poisoned before they are written."""

    def __init__(
        self,
        experiment: Experiment,
        executors_follow: Schedule | None = None,
        prepare: Callable[[Shared, SharedArrays], None] = lambda shared, block: None,
    ) -> None:
        """`prepare` fills the memory before anybody looks at it."""
        placement = Placement(
            backend="inline", num_executors=experiment.num_envs, num_actors=2, verify_storages=True, progress="off"
        )
        self.reports: list[UpdateReport] = []
        # Initial weights, too, have other bits with more threads.
        with single_threaded():
            blueprint = draw_blueprint(Config(experiment, placement))
            block = SharedArrays(blueprint.block_specs())
            self.shared = blueprint.shared(block)
            self.block, self.parameters = block, blueprint.build_parameters(block)
            parameters = self.parameters
            parameters.initialise(blueprint.build_policy())
            prepare(self.shared, block)
            followed = replace(self.shared, schedule=executors_follow or self.shared.schedule)
            self.executors = [blueprint.build_executor(i, followed, NO_BELLS) for i in range(experiment.num_envs)]
            self.actors = [blueprint.build_actor(i, self.shared, block, lambda envs: None) for i in range(2)]
            self.learner = blueprint.build_learner(
                block,
                self.shared,
                parameters,
                executors=lambda: None,
                report=self.reports.append,
                at_barrier=lambda update: None,
            )

    def work_in_random_order(self, seed: int, after_each_turn: Callable[[], None] = lambda: None) -> list[Link]:
        """Turns drawn one by one, some roles being much slower than others; returns the digest's links."""
        drawn = random.Random(seed)
        roles: list[Role] = [*self.executors, *self.actors, self.learner]
        pace = [drawn.choice([0.05, 0.3, 1.0]) for _ in roles]
        with single_threaded():
            idle_turns = 0
            while not self.learner.finished:
                progressed = drawn.choices(roles, pace)[0].advance()
                after_each_turn()
                idle_turns = 0 if progressed else idle_turns + 1
                assert idle_turns < 10_000, f"nobody can proceed: {[role.waits_for() for role in roles]}"
        return [report.link for report in self.reports]
