"""Which steps of an environment are timed, and that the sum is over all of them."""

from __future__ import annotations

import numpy as np
import pytest

from htsrl.roles import step_timer
from htsrl.roles.step_timer import QUICK_NS, TIMED_STEPS, StepTimer

NUM_STEPS = 20  # which sixteen does not divide


@pytest.mark.parametrize(("step_ns", "timed_rows"), [(QUICK_NS // 2, [0, 16]), (QUICK_NS, list(range(NUM_STEPS)))])
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
    assert max(heard) == (TIMED_STEPS if step_ns < QUICK_NS else 1)
