"""Which steps of an environment are timed, and that the sum is over all of them."""

from __future__ import annotations

import numpy as np
import pytest

from htsrl.roles import step_timer
from htsrl.roles.step_timer import QUICK_NS, TIMED_STEPS, StepTimer

NUM_STEPS = 40  # which sixteen does not divide


@pytest.mark.parametrize(("step_ns", "timed_rows"), [(QUICK_NS // 2, [0, 16, 32]), (QUICK_NS, list(range(NUM_STEPS)))])
def test_quick_steps_are_timed_one_in_sixteen_and_slow_ones_all(
    step_ns: int, timed_rows: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_timer, "now", lambda: step_ns)
    env_seconds, heard = np.zeros(3), list[int]()
    timer = StepTimer(1, env_seconds, NUM_STEPS)
    timer.on_steps = lambda start, end, number: heard.append(number)

    def rollout() -> list[int]:
        heard.clear()
        timer.begin_rollout()
        rows = [row for row in range(NUM_STEPS) if row % timer.every == 0]
        for row in rows:
            timer.end_step(0, row)
        assert sum(heard) == NUM_STEPS
        return rows

    assert rollout() == list(range(NUM_STEPS))
    assert rollout() == rollout() == timed_rows
    np.testing.assert_allclose(env_seconds, [0, 3 * NUM_STEPS * step_ns / 1e9, 0])
    assert max(heard) == (NUM_STEPS - 1 - TIMED_STEPS if step_ns < QUICK_NS else 1)


def test_a_quick_step_that_took_long_stands_for_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that lost its core would count sixteen times, and name an environment that is as quick as the others."""
    monkeypatch.setattr(step_timer, "now", lambda: 0)
    usual_ns, lost_ns, num_steps = 50_000, 5_000_000, 64
    env_seconds = np.zeros(1)
    timer = StepTimer(0, env_seconds, num_steps)

    def rollout(slow_row: int | None) -> float:
        before = env_seconds[0]
        timer.begin_rollout()
        for row in range(0, num_steps, timer.every):
            timer.end_step(-(lost_ns if row == slow_row else usual_ns), row)
        return float(env_seconds[0] - before)

    usual = num_steps * usual_ns / 1e9
    assert [rollout(None), rollout(None)] == pytest.approx([usual, usual])
    assert timer.every == TIMED_STEPS
    once_lost = pytest.approx(usual + (lost_ns - usual_ns) / 1e9, rel=0.2)
    assert rollout(slow_row=2 * TIMED_STEPS) == once_lost
    assert rollout(None) == pytest.approx(usual)
    assert timer.every == 1, "whether there are more of those is looked at step by step"
    rollout(None)
    assert timer.every == TIMED_STEPS
    assert rollout(slow_row=0) == once_lost, "the first step comes after a barrier, and stands for itself"


def test_of_a_short_rollout_more_than_the_first_step_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_timer, "now", lambda: 50_000)
    timer = StepTimer(0, np.zeros(1), num_steps=5)
    heard: list[int] = []
    timer.on_steps = lambda start, end, number: heard.append(number)
    for _ in range(2):
        heard.clear()
        timer.begin_rollout()
        for row in range(0, 5, timer.every):
            timer.end_step(0, row)
    assert heard == [1, 4]
