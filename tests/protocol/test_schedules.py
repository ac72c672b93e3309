"""Schedules as pure decisions: versions, lags and storages from the interval's number alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from htsrl.dataflow.versions import NUM_SLOTS, slot_of
from htsrl.schedules.hts import Hts
from htsrl.schedules.schedule import Schedule, may_begin
from htsrl.schedules.sync import Sync

HTS, SYNC, LOCKSTEP = Hts(), Sync(), Sync(step_barrier=True)
intervals = st.integers(0, 10**9)


def test_hts_fills_its_pipeline_with_two_rollouts_of_version_0() -> None:
    assert [HTS.acting_version(rollout) for rollout in range(6)] == [0, 0, 1, 2, 3, 4]


def test_sync_acts_with_the_newest_version() -> None:
    assert [SYNC.acting_version(rollout) for rollout in range(6)] == [0, 1, 2, 3, 4, 5]


def test_hts_lags_0_in_its_first_update() -> None:
    assert HTS.acting_version(0) == 0


@given(st.integers(1, 10**9))
def test_hts_lags_exactly_1_in_every_later_update(update: int) -> None:
    assert update - HTS.acting_version(update) == 1


@given(intervals)
@pytest.mark.parametrize("schedule", [SYNC, LOCKSTEP], ids=["sync", "lockstep"])
def test_sync_never_lags(schedule: Schedule, update: int) -> None:
    assert update - schedule.acting_version(update) == 0


def test_only_lockstep_has_a_barrier_at_every_step() -> None:
    assert [schedule.step_barrier for schedule in (HTS, SYNC, LOCKSTEP)] == [False, False, True]


@given(intervals, intervals)
@pytest.mark.parametrize("schedule", [HTS, SYNC], ids=["hts", "sync"])
def test_a_rollout_may_begin_once_its_acting_version_is_published(
    schedule: Schedule, rollout: int, published_version: int
) -> None:
    assert may_begin(schedule, rollout, published_version) == (published_version >= schedule.acting_version(rollout))


def test_under_hts_the_next_rollout_may_begin_before_the_update_on_this_one_has_ended() -> None:
    assert may_begin(HTS, rollout=5, published_version=4)
    assert not may_begin(HTS, rollout=6, published_version=4)


def test_under_sync_the_next_rollout_waits_for_the_update_on_this_one() -> None:
    assert may_begin(SYNC, rollout=4, published_version=4)
    assert not may_begin(SYNC, rollout=5, published_version=4)


@given(intervals)
def test_three_consecutive_versions_have_three_slots(version: int) -> None:
    assert len({slot_of(version + i) for i in range(3)}) == NUM_SLOTS == 3
