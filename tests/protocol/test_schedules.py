"""Schedules as pure decisions: versions, lags, slots and storages from the interval's number alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from htsrl import Experiment
from htsrl.dataflow.capsules import num_places_for
from htsrl.dataflow.exchange import Request
from htsrl.dataflow.versions import is_intact, num_slots_for, slot_of
from htsrl.schedules.asynchronous import Async
from htsrl.schedules.fixed_lag import FixedLag
from htsrl.schedules.make import make_schedule
from htsrl.schedules.recorded import RecordedSchedule
from htsrl.schedules.schedule import Schedule
from htsrl.sources.provenance import schedule_file

HTS, SYNC, LOCKSTEP = FixedLag(1), FixedLag(0), FixedLag(0, step_barrier=True)
LAGS = (0, 1, 2, 4)
intervals, lags = st.integers(0, 10**9), st.integers(0, 1000)


def scheduled(schedule: Any, **settings: Any) -> Schedule:
    return make_schedule(Experiment("CartPole-v1", schedule=schedule, **settings))


def test_the_schedules_of_an_experiment_differ_in_their_lag_and_their_barrier() -> None:
    assert scheduled("hts") == scheduled("hts", lag=1) == HTS
    assert scheduled("sync") == scheduled("hts", lag=0) == SYNC
    assert scheduled("lockstep") == LOCKSTEP
    assert scheduled("hts", lag=4) == FixedLag(4)
    assert scheduled("async", queue_length=5) == Async(5)


def test_a_schedule_that_was_recorded_speaks_the_same_protocol(tmp_path: Path) -> None:
    schedule_file(tmp_path).write_text('{"update": 0, "picks": [[0, 0, [[0, 0]], [[5, 0]]]]}\n')
    recorded: Schedule = scheduled("async", num_envs=1, sync_interval=5, replay_schedule=tmp_path, queue_length=3)
    assert isinstance(recorded, RecordedSchedule)
    assert (recorded.max_lag, recorded.num_storages, recorded.repeats) == (None, 3, True)
    assert recorded.answering_version(Request(env=0, rollout=0, ticket=2), published_version=7) == 0
    assert recorded.num_rollouts(env=0, num_updates=100) == 1


@pytest.mark.parametrize(
    ("lag", "versions"),
    [(0, [0, 1, 2, 3, 4, 5]), (1, [0, 0, 1, 2, 3, 4]), (2, [0, 0, 0, 1, 2, 3]), (4, [0, 0, 0, 0, 0, 1])],
)
def test_the_pipeline_fills_with_rollouts_of_version_0(lag: int, versions: list[int]) -> None:
    assert [FixedLag(lag).acting_version(rollout) for rollout in range(6)] == versions


@given(lags, intervals)
def test_every_update_after_the_first_ones_lags_exactly_as_much_as_the_schedule_says(lag: int, update: int) -> None:
    assert update - FixedLag(lag).acting_version(update) == min(update, lag)


def test_only_lockstep_has_a_barrier_at_every_step() -> None:
    assert [schedule.step_barrier for schedule in (HTS, SYNC, LOCKSTEP)] == [False, False, True]


@given(lags, intervals, intervals)
def test_a_rollout_may_begin_once_its_acting_version_is_published(lag: int, rollout: int, published: int) -> None:
    schedule = FixedLag(lag)
    request = Request(env=0, rollout=rollout, ticket=1)
    acting = schedule.acting_version(rollout)
    assert schedule.may_begin(rollout, published) == (published >= acting)
    assert schedule.answering_version(request, published) == acting


@pytest.mark.parametrize("lag", LAGS)
def test_as_many_rollouts_may_be_begun_beyond_the_one_that_is_learned_from_as_the_lag_is(lag: int) -> None:
    schedule = FixedLag(lag)
    assert schedule.may_begin(rollout=10 + lag, published_version=10)
    assert not schedule.may_begin(rollout=11 + lag, published_version=10)


@given(lags, intervals)
def test_versions_in_use_and_the_next_have_slots_of_their_own(lag: int, update: int) -> None:
    num_slots = num_slots_for(lag)
    in_use = range(max(update - lag, 0), update + 2)
    assert len({slot_of(version, num_slots) for version in in_use}) == len(in_use)


@pytest.mark.parametrize("lag", LAGS)
def test_a_version_is_intact_until_its_slot_may_be_written_again(lag: int) -> None:
    num_slots, version = num_slots_for(lag), 7
    taken_over_by = version + num_slots
    assert slot_of(taken_over_by, num_slots) == slot_of(version, num_slots)
    assert is_intact(version, taken_over_by - 2, num_slots)
    assert not is_intact(version, taken_over_by - 1, num_slots), "the update that writes it may have begun"


def test_the_lag_decides_over_slots_storages_and_capsules() -> None:
    assert [num_slots_for(lag) for lag in (*LAGS, None)] == [2, 3, 4, 6, 3]
    assert [FixedLag(lag).num_storages for lag in LAGS] == [2, 2, 3, 5]
    assert [num_places_for(lag) for lag in (*LAGS, None)] == [2, 2, 3, 5, 2]
