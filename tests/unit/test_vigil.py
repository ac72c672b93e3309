"""Who works without getting anywhere is found out, and nobody else."""

from __future__ import annotations

from htsrl.placements.vigil import Vigil

DEADLINE = 10.0


def watch(vigil: Vigil, signs_by_second: dict[int, list[object]]) -> dict[int, list[int]]:
    """Look every second, at the newest signs there are; who was overdue when."""
    found, signs = {}, signs_by_second[0]
    for second in range(max(signs_by_second) + 1):
        signs = signs_by_second.get(second, signs)
        if overdue := vigil.overdue(float(second), signs):
            found[second] = overdue
    return found


def test_a_sign_that_stays_the_same_beyond_the_deadline_is_overdue() -> None:
    assert watch(Vigil(DEADLINE, 2), {0: ["a", 1], 5: ["a", 2], 12: ["a", 3]}) == {11: [0], 12: [0]}


def test_one_who_waits_is_never_overdue() -> None:
    assert watch(Vigil(DEADLINE, 1), {0: [None], 60: [None]}) == {}


def test_one_who_has_waited_starts_anew() -> None:
    assert watch(Vigil(DEADLINE, 1), {0: ["a"], 8: [None], 9: ["a"], 19: ["a"]}) == {}


def test_a_worker_that_was_replaced_starts_anew() -> None:
    vigil = Vigil(DEADLINE, 1)
    watch(vigil, {0: ["a"], 10: ["a"]})
    vigil.forget(0)
    assert vigil.overdue(11.0, ["a"]) == []


def test_after_a_pause_of_the_watch_itself_nobody_is_blamed() -> None:
    """As when the whole run is stopped and continued, or the laptop slept."""
    vigil = Vigil(DEADLINE, 1)
    watch(vigil, {0: ["a"], 5: ["a"]})
    assert vigil.overdue(500.0, ["a"]) == []
    assert vigil.overdue(505.0, ["a"]) == []


def test_looks_are_frequent_enough_for_short_deadlines() -> None:
    assert Vigil(0.5, 1).pause_seconds <= 0.05
    assert Vigil(300.0, 1).pause_seconds <= 1.0
