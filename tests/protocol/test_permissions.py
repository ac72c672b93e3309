"""What executors and learner may do, in every order they could do it in, as a model without processes.

The model explores all reachable states of a few environments and one learner under the rules of the schedule, and
looks in each for what must never happen. Schedules that break the rules are found out, so the search can see.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

import pytest

from htsrl.dataflow.trajectory import NUM_STORAGES
from htsrl.dataflow.versions import NUM_SLOTS
from htsrl.schedules.hts import Hts
from htsrl.schedules.schedule import Schedule, may_begin
from htsrl.schedules.sync import Sync

NUM_ENVS = 3
NUM_ROLLOUTS = 8


class Violation(Enum):
    WRITTEN_WHILE_READ = "an environment writes into the storage that the learner reads"
    OVERWRITTEN_UNREAD = "an environment writes over a rollout that was not learned from yet"
    UNPUBLISHED = "an environment acts with a version that is not published yet"
    OVERWRITTEN_VERSION = "the slot of a version in use holds another one"
    DEADLOCK = "nobody may go on"


@dataclass(frozen=True)
class Env:
    """Between two rollouts, or writing one."""

    rollout: int = 0
    writing: bool = False


@dataclass(frozen=True)
class State:
    """Where everybody stands; the learner has published as many versions as it has made updates."""

    envs: tuple[Env, ...] = (Env(),) * NUM_ENVS
    update: int = 0
    reading: bool = False


@dataclass(frozen=True)
class Model:
    schedule: Schedule
    num_slots: int = NUM_SLOTS

    def violations(self) -> set[Violation]:
        """All that goes wrong in any state that can be reached."""
        seen, unexplored, found = {State()}, [State()], set[Violation]()
        while unexplored:
            state = unexplored.pop()
            found |= set(self._violations_in(state))
            following = set(self._following(state))
            if not following and state.update < NUM_ROLLOUTS:
                found.add(Violation.DEADLOCK)
            unexplored += following - seen
            seen |= following
        return found

    def _following(self, state: State) -> Iterator[State]:
        for index, env in enumerate(state.envs):
            if env.writing:
                yield self._with_env(state, index, Env(env.rollout + 1))
            elif env.rollout < NUM_ROLLOUTS and may_begin(self.schedule, env.rollout, state.update):
                yield self._with_env(state, index, Env(env.rollout, writing=True))
        if state.reading:
            yield replace(state, update=state.update + 1, reading=False)
        elif all(env.rollout > state.update for env in state.envs):
            yield replace(state, reading=True)

    def _with_env(self, state: State, index: int, env: Env) -> State:
        return replace(state, envs=(*state.envs[:index], env, *state.envs[index + 1 :]))

    def _violations_in(self, state: State) -> Iterator[Violation]:
        writing = [env.rollout for env in state.envs if env.writing]
        for rollout in writing:
            unread = range(state.update, rollout)
            if state.reading and (state.update - rollout) % NUM_STORAGES == 0:
                yield Violation.WRITTEN_WHILE_READ
            if any((earlier - rollout) % NUM_STORAGES == 0 for earlier in unread):
                yield Violation.OVERWRITTEN_UNREAD
            if self.schedule.acting_version(rollout) > state.update:
                yield Violation.UNPUBLISHED
        newest_written = state.update + state.reading  # an update writes the next version's slot
        in_use = {self.schedule.acting_version(rollout) for rollout in writing} | {state.update}
        if state.reading:
            in_use.add(self.schedule.acting_version(state.update))
        if any(version <= newest_written - self.num_slots for version in in_use):
            yield Violation.OVERWRITTEN_VERSION


@dataclass(frozen=True)
class Shifted:
    """Acts with a version that is some rollouts behind; a negative number is ahead."""

    behind: int
    step_barrier: bool = False

    def acting_version(self, rollout: int) -> int:
        return max(rollout - self.behind, 0)


@pytest.mark.parametrize("schedule", [Hts(), Sync()], ids=["hts", "sync"])
def test_in_every_order_of_events_no_storage_or_version_in_use_is_overwritten_and_nobody_deadlocks(
    schedule: Schedule,
) -> None:
    assert Model(schedule).violations() == set()


def test_the_model_knows_the_two_schedules_by_their_shifts() -> None:
    for rollout in range(NUM_ROLLOUTS):
        assert Shifted(behind=1).acting_version(rollout) == Hts().acting_version(rollout)
        assert Shifted(behind=0).acting_version(rollout) == Sync().acting_version(rollout)


def test_a_schedule_two_versions_behind_writes_into_the_storage_being_read() -> None:
    violations = Model(Shifted(behind=2)).violations()
    assert {Violation.WRITTEN_WHILE_READ, Violation.OVERWRITTEN_UNREAD} <= violations


def test_a_schedule_that_never_waits_runs_out_of_storages_and_slots() -> None:
    violations = Model(Shifted(behind=NUM_ROLLOUTS)).violations()
    assert {Violation.OVERWRITTEN_UNREAD, Violation.OVERWRITTEN_VERSION} <= violations


def test_a_schedule_that_is_ahead_of_the_learner_deadlocks() -> None:
    assert Model(Shifted(behind=-1)).violations() == {Violation.DEADLOCK}


def test_hts_needs_three_parameter_slots_and_sync_two() -> None:
    assert Model(Hts(), num_slots=2).violations() == {Violation.OVERWRITTEN_VERSION}
    assert Model(Sync(), num_slots=2).violations() == set()
    assert Model(Sync(), num_slots=1).violations() == {Violation.OVERWRITTEN_VERSION}
