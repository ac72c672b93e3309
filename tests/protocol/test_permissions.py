"""What executors and learner may do, in every order they could do it in, as a model without processes.

The model explores all reachable states of a few environments and one learner under the rules of the schedule, and
looks in each for what must never happen. Schedules that break the rules are found out, so the search can see.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

import pytest

from htsrl.dataflow.capsules import num_places_for
from htsrl.dataflow.versions import num_slots_for
from htsrl.schedules.fixed_lag import FixedLag

NUM_ENVS = 2
NUM_ROLLOUTS = 10
LAGS = (0, 1, 2, 4)


class Violation(Enum):
    WRITTEN_WHILE_READ = "an environment writes into the storage that the learner reads"
    OVERWRITTEN_UNREAD = "an environment writes over a rollout that was not learned from yet"
    UNPUBLISHED = "an environment acts with a version that is not published yet"
    OVERWRITTEN_VERSION = "the slot of a version in use holds another one"
    OVERWRITTEN_CAPSULE = "the place of the capsule at the barrier of the update under way holds another one"
    DEADLOCK = "nobody may proceed"


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
    schedule: FixedLag
    """What everybody goes by."""
    num_slots: int
    num_storages: int
    num_places: int

    @classmethod
    def of(cls, lag: int, behind: int | None = None) -> Model:
        """With the memory that a lag asks for, whose executors may be told to be `behind` by another."""
        schedule = FixedLag(lag)
        followed = schedule if behind is None else FixedLag(behind)
        return cls(followed, num_slots_for(lag), schedule.num_storages, num_places_for(lag))

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
            elif env.rollout < NUM_ROLLOUTS and self.schedule.may_begin(env.rollout, state.update):
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
            if state.reading and (state.update - rollout) % self.num_storages == 0:
                yield Violation.WRITTEN_WHILE_READ
            if any((earlier - rollout) % self.num_storages == 0 for earlier in unread):
                yield Violation.OVERWRITTEN_UNREAD
            if self.schedule.acting_version(rollout) > state.update:
                yield Violation.UNPUBLISHED
        newest_written = state.update + state.reading  # an update writes the next version's slot
        in_use = {self.schedule.acting_version(rollout) for rollout in writing} | {state.update}
        if state.reading:
            in_use.add(self.schedule.acting_version(state.update))
        if any(version <= newest_written - self.num_slots for version in in_use):
            yield Violation.OVERWRITTEN_VERSION
        # An environment that writes a rollout may be putting down the capsule behind it.
        newest_capsule = max(env.rollout + env.writing for env in state.envs)
        if state.reading and newest_capsule >= state.update + 1 + self.num_places:
            yield Violation.OVERWRITTEN_CAPSULE


@pytest.mark.parametrize("lag", LAGS)
def test_in_every_order_of_events_nothing_in_use_is_overwritten_and_nobody_deadlocks(lag: int) -> None:
    assert Model.of(lag).violations() == set()


@pytest.mark.parametrize("lag", LAGS)
def test_executors_one_version_ahead_of_the_lag_write_into_the_storage_being_read(lag: int) -> None:
    behind = max(lag, 1) + 1  # without a lag there is a storage to spare
    violations = Model.of(lag, behind).violations()
    assert {Violation.WRITTEN_WHILE_READ, Violation.OVERWRITTEN_UNREAD} <= violations


def test_executors_that_never_wait_run_out_of_storages_slots_and_capsules() -> None:
    violations = Model.of(1, behind=NUM_ROLLOUTS).violations()
    assert violations == {*Violation} - {Violation.UNPUBLISHED, Violation.DEADLOCK}


def test_a_schedule_that_is_ahead_of_the_learner_deadlocks() -> None:
    assert Model.of(0, behind=-1).violations() == {Violation.DEADLOCK}


@pytest.mark.parametrize("lag", LAGS)
def test_one_slot_less_is_too_few(lag: int) -> None:
    model = Model.of(lag)
    assert replace(model, num_slots=model.num_slots - 1).violations() == {Violation.OVERWRITTEN_VERSION}


@pytest.mark.parametrize("lag", LAGS[1:])
def test_one_storage_or_one_place_for_a_capsule_less_is_too_few(lag: int) -> None:
    model = Model.of(lag)
    without_a_storage = replace(model, num_storages=model.num_storages - 1)
    assert without_a_storage.violations() == {Violation.WRITTEN_WHILE_READ, Violation.OVERWRITTEN_UNREAD}
    assert replace(model, num_places=model.num_places - 1).violations() == {Violation.OVERWRITTEN_CAPSULE}
