"""One environment and where it stands in its rollout."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from time import monotonic_ns as now
from typing import Any, TypeVar, TypeVarTuple

from htsrl.dataflow.capsules import Capsule
from htsrl.dataflow.exchange import BEGAN_EARLIER, COMING_BACK
from htsrl.dataflow.trajectory import BOOTSTRAP_VERSIONS, RECURRENT_STATE
from htsrl.envs.agents import Agents, Outcome
from htsrl.envs.observing import Rows
from htsrl.envs.team import Info
from htsrl.errors import EnvironmentFailure, RuleBroken
from htsrl.processes.kill_points import kill_point
from htsrl.roles.env_failure import failure_of
from htsrl.roles.episode import Episode, number_in, step_info_in
from htsrl.roles.recall import recall_of
from htsrl.roles.runner_plan import RunnerPlan
from htsrl.roles.shared import Shared
from htsrl.roles.step_timer import StepTimer
from htsrl.seeding import reset_seed

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")
CLEARED_FIELDS: dict[str, float | bool] = {
    "terminated": False,
    "truncated": False,
    "episode_lengths": 0,
    "episode_returns": 0,
    "bootstrap_values": 0,
    "failures": 0,
    BOOTSTRAP_VERSIONS: -1,
}
MAX_KEPT_ROWS = 256
"""Of a storage, by an environment, at 0.4 kB each; where rollouts are longer, the rows are found anew in every one."""
MAX_FAILED_RESETS = 4
"""One after the other: an environment that cannot begin any episode is not going to learn anything."""


class Stage(Enum):
    """What an env runner waits for."""

    RETURN = "its turn"
    HANDSHAKE = "its actor to be done with what an executor before it had asked for"
    VERSION = "the next version, or room in the queue"
    ACTION = "an action"
    FINAL_VALUE = "the value of the observation at which a time limit cut an episode"
    LAST_VALUE = "the value of the observation after the last step of a rollout that will queue"
    NOTHING = "nothing, all rollouts are done"


class EnvRunner:
    """Steps one environment through its rollouts; each `advance` takes it to its next wait."""

    def __init__(
        self,
        index: int,
        agents: Agents,
        shared: Shared,
        plan: RunnerPlan,
    ) -> None:
        self.index = index
        self.stage = Stage.VERSION if plan.num_rollouts else Stage.NOTHING
        self.rollout = 0
        self.row = 0
        self.agents = agents
        self._episode = Episode.of(agents.env)
        self._capsules = shared.capsules
        self._capsule: Capsule | None = None  # where this rollout started from
        self._episode_row: int | None = None  # where in this rollout the episode began
        self._recall = recall_of(index, agents, shared)
        self._shared = shared
        self._storages = shared.storages
        self._exchange = shared.exchange
        self._requests, self._answers = shared.exchange.request_of, shared.exchange.answer_to
        self._inside = shared.exchange.inside_of
        self._info_names = shared.storages.spec.info_names
        self._cleared = {name: x for name, x in CLEARED_FIELDS.items() if name in shared.storages.fields}
        self._cleared |= dict.fromkeys(self._info_names.values(), math.nan)
        self._final_names = shared.storages.spec.final_names
        self._step_info_names = shared.storages.spec.step_info_names
        self._keeps_more = bool(self._final_names or self._step_info_names)
        self._cleared |= dict.fromkeys(self._final_names.values(), 0)
        self._seed = plan.seed
        self._num_rollouts = plan.num_rollouts
        self._excludes = plan.excludes
        self._poisons = plan.poisons
        self._num_steps = shared.storages.spec.num_steps
        self._columns = shared.storages.spec.columns_of(index)
        self._own: Rows = {}  # the columns of this rollout, of every field
        self._kept_rows: dict[int, list[Rows]] = {}  # where observations belong, by storage and row
        self._observations: list[Rows] = []  # those of this rollout
        self._first_column = index * self.agents.num_agents
        self.step_timer = StepTimer(index, shared.exchange.env_seconds, self._num_steps)
        if completed := int(self._exchange.completed_rollouts[index]):
            self._come_back(completed)
        if self._requests[index] and self.stage is not Stage.NOTHING:
            self.stage = Stage.RETURN

    def advance(self) -> bool:
        stage, index = self.stage, self.index
        if stage is Stage.RETURN:
            self._begin_handshake()
            return True
        if stage is Stage.VERSION:
            if not self._shared.may_begin(index, self.rollout):
                return False
            self._begin_rollout()
            return True
        if stage is Stage.NOTHING or self._answers[index] != self._requests[index]:
            return False
        if stage is Stage.ACTION:
            self._step()
        elif stage is Stage.HANDSHAKE:
            self.stage = Stage.VERSION
        elif stage is Stage.FINAL_VALUE:
            if self._episode.is_over:
                self._begin_episode()
            self._enter_next_row(needs_value=False)
        else:
            self._complete_rollout()
        return True

    def close(self) -> None:
        self.agents.close()

    def keep_capsule(self) -> None:
        """Put down what brings the environment back to the start of the rollout that follows."""
        begun_from = self._capsule, self._storage, self._episode_row
        heap, num_bytes = self._blaming("save_state", "", self._recall.keep, *begun_from)
        episode, is_log = self._episode, self._recall.is_log
        self._capsule = Capsule(episode.number, episode.score, episode.length, heap, num_bytes, is_log)
        kill_point("inside a capsule")
        self._capsules.put(self.index, self.rollout, self._capsule)

    def _come_back(self, completed: int) -> None:
        """Go on after the rollouts that count; what was begun of the next one is made once more, to the same bits."""
        self.rollout = completed
        if completed >= self._num_rollouts:
            self.stage = Stage.NOTHING
            return
        self._capsule = capsule = self._capsules.get(self.index, completed)
        self._episode.go_on(capsule.episode, capsule.score, capsule.length)
        self._exchange.episodes[self.index] = capsule.episode, COMING_BACK
        seed = self._reset_seed()
        self._blaming("coming back", seed, self._recall.bring_back, capsule, seed)

    def _begin_handshake(self) -> None:
        """An answer to the executor before may be under way, which must not be taken for one to this."""
        self.stage = Stage.HANDSHAKE
        request, answer = self._requests[self.index], self._answers[self.index]
        self._requests[self.index] = self._exchange.tickets.handshake(request, answer)

    def _begin_rollout(self) -> None:
        self._storage = self._storages.of_rollout(self.rollout)
        self._own = {name: x[self._storage, :, self._columns] for name, x in self._storages.fields.items()}
        self._observations = self._rows_of(self._storage)
        self.row = 0
        self.step_timer.begin_rollout()
        self._note_episode(row=None)
        if self._poisons:
            self._storages.poison(self._storage, self._columns)
        self._draw_noise()
        for name, cleared in self._cleared.items():
            self._own[name][...] = cleared
        if self._excludes:
            self._own["active"][...] = True
        if self.rollout == 0:
            self._begin_episode()
        else:
            previous = self._storages.of_rollout(self.rollout - 1)
            for array in self._storages.inputs.values():
                array[self._storage, 0, self._columns] = array[previous, self._num_steps, self._columns]
        self._ask_for_action()

    def _draw_noise(self) -> None:
        noise, first_step = self._storages.spec.noise, self.rollout * self._num_steps
        for column in range(self._first_column, self._first_column + self.agents.num_agents):
            rows = noise.draw(self._seed, column, first_step, self._num_steps)
            self._storages["noise"][self._storage, : self._num_steps, column] = rows

    def _step(self) -> None:
        own, row = self._own, self.row
        action = self.agents.to_env(own["actions"][row])
        seen = self._observations[row + 1]
        kill_point("before a step")
        is_timed = row % self.step_timer.every == 0
        start = now() if is_timed else 0
        outcome = self._blaming("step", action, self.agents.step, action, seen)
        if is_timed:
            self.step_timer.end_step(start, row)
        own["rewards"][row] = outcome.rewards
        kill_point("inside a storage write")
        if outcome.over or self.agents.is_team:
            own["terminated"][row] = outcome.terminated
            own["truncated"][row] = outcome.truncated
        self._episode.add(outcome)
        if outcome.failed:
            self._count_failure(row)
            if self._excludes:
                own["active"][self._episode_row or 0 : row + 1] = False
            for name, before in self._observations[row].items():
                seen[name][...] = before
        if self._keeps_more:
            self._keep_for_algorithm(outcome, seen)
        self.row += 1
        if outcome.over and not (outcome.failed and self._excludes):
            self._note_end(outcome.info)
        if outcome.cut:
            self._ask_for_value(Stage.FINAL_VALUE)
            return
        if outcome.over:
            self._begin_episode()
        self._enter_next_row(needs_value=not outcome.over)

    def _keep_for_algorithm(self, outcome: Outcome, seen: Rows) -> None:
        """What the algorithm wants of a step beside the usual, while the next row still shows what followed it."""
        own, row = self._own, self.row
        for key, name in self._step_info_names.items():
            like = own[name][row]
            told = 0 if outcome.failed else self._blaming("step", key, step_info_in, outcome.info, key, like)
            own[name][row] = told
        if self._final_names and (outcome.ended or row + 1 == self._num_steps):
            for name, final in self._final_names.items():
                own[final][row] = seen[name]

    def _enter_next_row(self, needs_value: bool) -> None:
        """Go on after a step.

        The rollout's last observation needs a value, unless it has one or begins an episode. The learner adds it, if it
        can ask the version that acted.
        """
        if self.row < self._num_steps:
            self._ask_for_action()
        elif needs_value and self._shared.schedule.mixes_versions:
            self._ask_for_value(Stage.LAST_VALUE)
        else:
            self._complete_rollout()

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
        if self.agents.is_team:
            self._own["active"][self.row] = self.agents.active
        kill_point("before a request")
        self._requests[self.index] = self._exchange.tickets.to_act(self.rollout, self.row)
        kill_point("after a request")

    def _ask_for_value(self, stage: Stage) -> None:
        self.stage = stage
        self._requests[self.index] = self._exchange.tickets.for_value(self.rollout, self.row)

    def _begin_episode(self) -> None:
        start = now()
        info = self._reset()
        self.step_timer.end_reset(start)
        if self._storages.spec.state_size:
            self._own[RECURRENT_STATE][self.row] = 0.0
        if self.row > 0:
            self._note_late_end(info)

    def _reset(self) -> Info:
        """Begin the next episode; where failures are allowed, one whose reset fails is counted and left out."""
        for others in reversed(range(MAX_FAILED_RESETS)):
            self._episode.begin_next()
            self._note_episode(self.row)
            seed = self._reset_seed()
            try:
                return self._blaming("reset", seed, self.agents.reset, seed, self._observations[self.row])
            except EnvironmentFailure:
                if not others or "failures" not in self._storages.fields:
                    raise
                self._inside[self.index] += 1  # it has come back, with nothing
                self._count_failure(max(self.row - 1, 0))
        raise AssertionError("the last failure is raised")

    def _count_failure(self, row: int) -> None:
        self._storages["failures"][self._storage, row, self._first_column] += 1

    def _note_episode(self, row: int | None) -> None:
        """Which row of the rollout the episode begins at, None for an earlier rollout."""
        self._episode_row = row
        self._exchange.episodes[self.index] = self._episode.number, BEGAN_EARLIER if row is None else row

    def _note_end(self, info: Info) -> None:
        if ended := self._episode.ended(info):
            at = (self._storage, self.row - 1, self._first_column)
            self._storages["episode_returns"][at], self._storages["episode_lengths"][at] = ended
            for key, name in self._info_names.items():
                self._storages[name][at] = number_in(info, key)

    def _note_late_end(self, info: Info) -> None:
        """An environment that continues after a lost life may find its game ended before it could."""
        if self._episode.is_reported_in(info):
            self._note_end(info)

    def _rows_of(self, storage: int) -> list[Rows]:
        """Where the observations of each row belong; the ellipsis makes a view even of a single number."""
        if (kept := self._kept_rows.get(storage)) is not None:
            return kept
        own = {name: self._own[name] for name in self._storages.observations}
        rows = [{name: x[row, ...] for name, x in own.items()} for row in range(self._num_steps + 1)]
        if len(rows) <= MAX_KEPT_ROWS:
            self._kept_rows[storage] = rows
        return rows

    def _reset_seed(self) -> int:
        return reset_seed(self._seed, self.index, self._episode.number)

    def _blaming(
        self, what: str, argument: Any, call: Callable[[*Arguments], Result], *arguments: *Arguments
    ) -> Result:
        """Let the environment run; whatever goes wrong is its fault, and `what` it did with `argument` is named."""
        self._inside[self.index] += 1
        try:
            result = call(*arguments)
        except EnvironmentFailure:
            raise
        except (Exception, SystemExit) as error:
            raise failure_of(
                f"environment {self.index}", self.index, f"{what}({argument})", self._where(), error
            ) from (
                error if isinstance(error, RuleBroken) else None  # the text has its traceback
            )
        self._inside[self.index] += 1
        return result

    def _where(self) -> str:
        step = self.rollout * self._num_steps + self.row
        return f"its step {step} (episode {self._episode.number}, seed {self._reset_seed()})"
