"""One lane and where it stands in its rollout: an env runner for as many environments as one call steps.

It asks for the actions of all its environments with one ticket, and what they see is written where the learner reads
it, all at once. Where a time limit cuts some of their episodes, their final observations stand in the next row until
the actor has valued them; then the next episodes begin there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import monotonic_ns as now
from typing import Any, ParamSpec, TypeVar

import numpy as np

from htsrl.dataflow.capsules import Capsule
from htsrl.dataflow.exchange import BEGAN_EARLIER, COMING_BACK
from htsrl.dataflow.trajectory import RECURRENT_STATE
from htsrl.envs.lanes.lane import Bools, LaneOutcome, LaneSimulator
from htsrl.envs.observing import Rows
from htsrl.errors import EnvironmentFailure, RuleBroken
from htsrl.processes.kill_points import kill_point
from htsrl.roles.env_failure import failure_of
from htsrl.roles.env_runner import CLEARED_FIELDS, Stage
from htsrl.roles.episode import step_info_in
from htsrl.roles.lane_envs import LaneEnvs
from htsrl.roles.lane_recall import LaneLogRecall, LaneStateRecall
from htsrl.roles.runner_plan import RunnerPlan
from htsrl.roles.shared import Shared
from htsrl.roles.step_timer import StepTimer
from htsrl.spaces.many_actions import ToEnvs

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class LaneRunner:
    """Steps one lane through its rollouts; each `advance` takes it to its next wait."""

    def __init__(
        self,
        index: int,
        simulator: LaneSimulator,
        shared: Shared,
        plan: RunnerPlan,
        to_envs: ToEnvs,
    ) -> None:
        spec = shared.storages.spec
        self.index = index
        self.stage = Stage.VERSION if plan.num_rollouts else Stage.NOTHING
        self.rollout = 0
        self.row = 0
        self.agents = simulator
        self._first_env = index * spec.num_agents
        self._envs = LaneEnvs(simulator, self._first_env, plan.seed)
        self._recall = (
            LaneStateRecall(index, self._envs, shared)
            if simulator.can_save_state()
            else LaneLogRecall(index, self._envs, shared, to_envs)
        )
        self._shared = shared
        self._storages = shared.storages
        self._exchange = shared.exchange
        self._capsules = shared.capsules
        self._capsule: Capsule | None = None  # where this rollout started from
        self._seed = plan.seed
        self._num_rollouts = plan.num_rollouts
        self._num_steps = spec.num_steps
        self.step_timer = StepTimer(index, shared.exchange.env_seconds, spec.num_steps)
        self._columns = spec.columns_of(index)
        self._to_envs = to_envs
        self._poisons = plan.poisons
        self._cleared = {name: x for name, x in CLEARED_FIELDS.items() if name in shared.storages.fields}
        self._cleared |= dict.fromkeys(spec.info_names.values(), math.nan)
        self._cleared |= dict.fromkeys(spec.final_names.values(), 0)
        self._own: Rows = {}  # the columns of this rollout, of every field
        self._ended: Bools = np.zeros(spec.num_agents, np.bool_)  # in the step before
        if completed := int(self._exchange.completed_rollouts[index]):
            self._come_back(completed)
        if self._exchange.requests[index] and self.stage is not Stage.NOTHING:
            self.stage = Stage.RETURN

    def advance(self) -> bool:
        if self.stage is Stage.RETURN:
            self._begin_handshake()
            return True
        if self.stage is Stage.VERSION:
            if not self._shared.may_begin(self.index, self.rollout):
                return False
            self._begin_rollout()
            return True
        index = self.index
        if self.stage is Stage.NOTHING or self._exchange.answers[index] != self._exchange.requests[index]:
            return False
        if self.stage is Stage.HANDSHAKE:
            self.stage = Stage.VERSION
        elif self.stage is Stage.ACTION:
            self._step()
        else:
            self._enter_next_row()
        return True

    def close(self) -> None:
        self.agents.close()

    def keep_capsule(self) -> None:
        """Put down what brings the lane back to the start of the rollout that follows."""
        heap, num_bytes = self._blaming("save_state", self._recall.keep, self._capsule, self._storage)
        self._capsule = Capsule(0, 0.0, 0, heap, num_bytes, self._recall.is_log)
        kill_point("inside a capsule")
        self._capsules.put(self.index, self.rollout, self._capsule)

    def _come_back(self, completed: int) -> None:
        """Go on after the rollouts that count; what was begun of the next one is made once more, to the same bits."""
        self.rollout = completed
        if completed >= self._num_rollouts:
            self.stage = Stage.NOTHING
            return
        self._capsule = self._capsules.get(self.index, completed)
        self._exchange.episodes[self.index] = 0, COMING_BACK
        observations = {name: x[0, 0, self._columns] for name, x in self._storages.observations.items()}
        scratch = {name: np.empty_like(x) for name, x in observations.items()}
        self._blaming("coming back", self._recall.bring_back, self._capsule, scratch)

    def _begin_handshake(self) -> None:
        """An answer to the executor before may be under way, which must not be taken for one to this."""
        self.stage = Stage.HANDSHAKE
        requests, answers = self._exchange.requests, self._exchange.answers
        requests[self.index] = self._exchange.tickets.handshake(int(requests[self.index]), int(answers[self.index]))

    def _begin_rollout(self) -> None:
        storages = self._storages
        self._storage = storages.of_rollout(self.rollout)
        self._own = {name: x[self._storage, :, self._columns] for name, x in storages.fields.items()}
        self.row = 0
        self.step_timer.begin_rollout()
        self._exchange.episodes[self.index] = 0, BEGAN_EARLIER if self.rollout else 0
        if self._poisons:
            storages.poison(self._storage, self._columns)
        first_step, envs = self.rollout * self._num_steps, range(self._first_env, self._first_env + self._envs.num_envs)
        noise = storages.spec.noise.draw_many(self._seed, envs, first_step, self._num_steps)
        self._own["noise"][: self._num_steps] = noise
        for name, cleared in self._cleared.items():
            self._own[name][...] = cleared
        if self.rollout == 0:
            start = now()
            self._blaming("reset", self._envs.reset, self._observations(0))
            self.step_timer.end_reset(start)
            if storages.spec.state_size:
                self._own[RECURRENT_STATE][0] = 0.0
        else:
            previous = storages.of_rollout(self.rollout - 1)
            for array in storages.inputs.values():
                array[self._storage, 0, self._columns] = array[previous, self._num_steps, self._columns]
        self._ask_for_action()

    def _step(self) -> None:
        own, row, seen = self._own, self.row, self._observations(self.row + 1)
        kill_point("before a step")
        actions, is_timed = self._to_envs(own["actions"][row]), row % self.step_timer.every == 0
        start = now() if is_timed else 0
        outcome = self._blaming("step", self._envs.step, actions, seen)
        if is_timed:
            self.step_timer.end_step(start, row)
        own["rewards"][row] = outcome.rewards
        kill_point("inside a storage write")
        own["terminated"][row] = outcome.terminated
        own["truncated"][row] = outcome.truncated
        self._ended = outcome.ended
        any_ended = bool(self._ended.any())
        if any_ended and not outcome.has_finals:
            for name, before in self._observations(row).items():
                seen[name][self._ended] = before[self._ended]
        self._keep_for_algorithm(outcome, seen)
        if any_ended:
            self._note_ends(outcome)
        self.row += 1
        if any_ended and bool((outcome.truncated & ~outcome.terminated).any()):
            self.stage = Stage.FINAL_VALUE
            self._exchange.requests[self.index] = self._exchange.tickets.for_value(self.rollout, self.row)
        else:
            self._enter_next_row()

    def _keep_for_algorithm(self, outcome: LaneOutcome, seen: Rows) -> None:
        """What the algorithm wants of a step beside the usual, while the next row still shows what followed it."""
        own, row, spec = self._own, self.row, self._storages.spec
        for key, name in spec.step_info_names.items():
            own[name][row] = self._blaming("step", step_info_in, outcome.info, key, own[name][row])
        for name, final in spec.final_names.items():
            if row + 1 == self._num_steps:
                own[final][row] = seen[name]
            else:
                own[final][row, self._ended] = seen[name][self._ended]

    def _note_ends(self, outcome: LaneOutcome) -> None:
        own, row, ended = self._own, self.row, self._ended
        own["episode_returns"][row, ended] = self._envs.scores[ended]
        own["episode_lengths"][row, ended] = self._envs.lengths[ended]
        for key, name in self._storages.spec.info_names.items():
            if key in outcome.info:
                own[name][row, ended] = outcome.info[key][ended]

    def _enter_next_row(self) -> None:
        if self._ended.any():
            self._begin_episodes()
        if self.row < self._num_steps:
            self._ask_for_action()
        else:
            self._complete_rollout()

    def _begin_episodes(self) -> None:
        start = now()
        self._blaming("reset", self._envs.begin_episodes, self._ended, self._observations(self.row))
        self.step_timer.end_reset(start)
        if self._storages.spec.state_size and not self.agents.idles:  # of those that idle, the actor does so
            self._own[RECURRENT_STATE][self.row, self._ended] = 0.0

    def _complete_rollout(self) -> None:
        self._shared.source.put(self.index, self.rollout)
        self.rollout += 1
        self.keep_capsule()
        kill_point("before a rollout counts")
        self._exchange.completed_rollouts[self.index] = self.rollout  # and the capsule with it
        kill_point("after a rollout counts")
        self.stage = Stage.VERSION if self.rollout < self._num_rollouts else Stage.NOTHING

    def _ask_for_action(self) -> None:
        self.stage = Stage.ACTION
        if "active" in self._own:
            self._own["active"][self.row] = ~self._envs.idle
        kill_point("before a request")
        self._exchange.requests[self.index] = self._exchange.tickets.to_act(self.rollout, self.row)
        kill_point("after a request")

    def _observations(self, row: int) -> Rows:
        return {name: self._own[name][row] for name in self._storages.observations}

    def _blaming(self, what: str, call: Callable[Arguments, Result], *args: Any, **kw: Any) -> Result:
        """Let the simulator run; whatever goes wrong is its fault."""
        self._exchange.inside[self.index] += 1
        try:
            result = call(*args, **kw)
        except EnvironmentFailure:
            raise
        except (Exception, SystemExit) as error:
            step = self.rollout * self._num_steps + self.row
            where = f"its step {step} (seed {self._seed}, environments {self._first_env} and on)"
            raise failure_of(f"lane {self.index}", self.index, f"{what}(...)", where, error) from (
                error if isinstance(error, RuleBroken) else None
            )
        self._exchange.inside[self.index] += 1
        return result
