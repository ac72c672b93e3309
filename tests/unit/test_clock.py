"""How fast a run was."""

from __future__ import annotations

import pytest

from htsrl.runs.recorder import Clock


def test_rollouts_made_before_the_learner_was_up_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two rollouts wait for the learner, which learns from both at once; from then on one takes half a second.
    times = iter([0.0, 10.0, 10.01, 10.51, 11.01])
    monkeypatch.setattr("htsrl.runs.recorder.time.monotonic", lambda: next(times))
    clock = Clock()

    for update in range(1, 5):
        clock.tick(steps=100 * update)

    assert clock.steps_per_second == pytest.approx(200.0)
    assert clock.seconds == pytest.approx(11.01)


def test_a_run_of_two_updates_is_measured_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 4.0, 5.0])
    monkeypatch.setattr("htsrl.runs.recorder.time.monotonic", lambda: next(times))
    clock = Clock()

    clock.tick(steps=100)
    clock.tick(steps=200)

    assert clock.steps_per_second == pytest.approx(40.0)
