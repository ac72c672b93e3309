"""rliable's numbers, computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from htsrl.statistics.aggregates import interquartile_mean, performance_profile, probability_of_improvement


def test_the_interquartile_mean_leaves_out_a_quarter_at_either_end() -> None:
    # Of eight, the lowest and the highest two go: (3 + 4 + 5 + 6) / 4.
    assert interquartile_mean(np.array([[1.0, 900.0], [80.0, 3.0], [6.0, -50.0], [4.0, 5.0]])) == 4.5


def test_the_interquartile_mean_of_a_number_that_four_does_not_divide_cuts_fewer() -> None:
    # A quarter of six is one, rounded down: (2 + 3 + 4 + 5) / 4.
    assert interquartile_mean(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 60.0]])) == 3.5
    assert interquartile_mean(np.array([[7.0]])) == 7.0


def test_improvement_is_a_mean_over_tasks_and_a_tie_counts_half() -> None:
    # First task: 3 beats 1 and 2, 2 beats 1 and ties with 2: 3.5 of 4. Second: 0 ties with 0 twice, -1 loses: 1 of 4.
    ours = np.array([[3.0, 0.0], [2.0, -1.0]])
    theirs = np.array([[1.0, 0.0], [2.0, 0.0]])
    assert probability_of_improvement(ours, theirs) == pytest.approx((3.5 / 4 + 1 / 4) / 2)
    assert probability_of_improvement(theirs, ours) == pytest.approx(1 - (3.5 / 4 + 1 / 4) / 2)


def test_improvement_takes_different_numbers_of_runs() -> None:
    assert probability_of_improvement(np.array([[2.0]]), np.array([[1.0], [2.0], [3.0]])) == pytest.approx(0.5)


def test_a_profile_has_the_share_of_runs_above_each_threshold() -> None:
    scores = np.array([[0.0, 0.5], [1.0, 1.5]])
    assert performance_profile(scores, [-1.0, 0.0, 0.5, 1.2, 2.0]) == [1.0, 0.75, 0.5, 0.25, 0.0]
