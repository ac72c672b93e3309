"""A worker is started again unless that would lead to the same end."""

from __future__ import annotations

import pytest

from htsrl.errors import (
    ConfigError,
    EnvironmentFailure,
    HtsrlError,
    NotReproduced,
    PeerDied,
    TrainingDiverged,
    UnclearCrash,
    WaitTimeout,
)
from htsrl.placements.restarts import (
    MAX_KILLS_AT_ONE_POINT,
    MAX_KILLS_IN_ONE_STEP,
    MAX_UNCLEAR_CRASHES,
    Death,
    Restarts,
)


def death(worker: int = 0, point: int = 0, by_sigkill: bool = False, error: HtsrlError | None = None) -> Death:
    return Death(worker, point, by_sigkill, error or PeerDied(f"worker {worker}"))


def test_a_first_death_is_tolerated_and_a_second_at_the_same_point_is_not() -> None:
    restarts, second = Restarts(allowed=True), death()
    assert restarts.judge(death()) is None
    assert restarts.judge(second) is second.error


def test_deaths_at_other_points_or_of_others_are_tolerated_without_end() -> None:
    restarts = Restarts(allowed=True)
    for point in range(100):
        assert restarts.judge(death(worker=0, point=point)) is None
        assert restarts.judge(death(worker=1, point=point)) is None


def test_two_environments_that_fail_in_turn_do_not_go_on_for_ever() -> None:
    restarts = Restarts(allowed=True)
    assert [restarts.judge(death(point=point)) is None for point in (1, 2, 1)] == [True, True, False]


def test_kills_from_outside_are_tolerated_more_often_at_one_point() -> None:
    restarts = Restarts(allowed=True)
    for _ in range(MAX_KILLS_AT_ONE_POINT):
        assert restarts.judge(death(by_sigkill=True)) is None
    assert restarts.judge(death(by_sigkill=True)) is not None


def test_kills_in_one_step_of_an_environment_are_tolerated_less_often_and_laid_to_its_charge() -> None:
    restarts, killed = Restarts(allowed=True), Death(0, "step 7", by_sigkill=True, error=PeerDied("it died"), suspect=5)
    assert [restarts.judge(killed) for _ in range(MAX_KILLS_IN_ONE_STEP)] == [None] * MAX_KILLS_IN_ONE_STEP
    fatal = restarts.judge(killed)
    assert isinstance(fatal, EnvironmentFailure)
    assert fatal.env == 5
    assert str(fatal).startswith("in environment 5, it died, 3 times in the same step. ")


@pytest.mark.parametrize("kind", [ConfigError, HtsrlError, NotReproduced, TrainingDiverged, WaitTimeout])
def test_what_would_happen_again_for_certain_is_not_tried_again(kind: type[HtsrlError]) -> None:
    error = kind("it cannot work")
    assert Restarts(allowed=True).judge(death(error=error)) is error


def test_without_restarts_the_first_death_is_the_end() -> None:
    killed = Death(0, "step 7", by_sigkill=True, error=PeerDied("it died"), suspect=5)
    assert Restarts(allowed=False).judge(killed) is killed.error


def test_a_crash_that_may_be_of_several_is_given_time_to_become_clear() -> None:
    restarts = Restarts(allowed=True)
    crash = Death(0, point="here", by_sigkill=False, error=UnclearCrash("in one of environments [0, 1]"))
    assert [restarts.judge(crash) for _ in range(MAX_UNCLEAR_CRASHES)] == [None] * MAX_UNCLEAR_CRASHES
    assert restarts.judge(crash) is crash.error
