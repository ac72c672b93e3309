"""Intervals cover what they say at the few seeds that there are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from htsrl.statistics.aggregates import interquartile_mean
from htsrl.statistics.intervals import (
    CONFIDENCE,
    Interval,
    mean_interval,
    p_value,
    paired_interval,
    shown_together,
    t_quantile,
)
from htsrl.statistics.stratified import interquartile_difference, interquartile_interval

NUM_TRIALS = 3000
SKEW_ALLOWANCE = 0.01
"""What a mild skew may take from the coverage: t is exact for normal values only."""
MakeInterval = Callable[[Sequence[float]], Interval | None]


def normal(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return generator.normal(0.0, 1.0, shape)


def mildly_skewed(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """A gamma distribution of skewness 0.7 around 0, as of returns that a few seeds fall short of."""
    return generator.gamma(8.0, 1.0, shape) - 8.0


def coverage(
    make: MakeInterval, draw: Callable[[np.random.Generator, tuple[int, int]], np.ndarray], num_seeds: int
) -> float:
    samples = draw(np.random.default_rng(num_seeds), (NUM_TRIALS, num_seeds)).tolist()
    found = [make(sample) for sample in samples]
    return sum(interval is not None and interval.has_zero for interval in found) / NUM_TRIALS


def percentile_bootstrap(values: Sequence[float]) -> Interval:
    sample = np.asarray(values)
    draws = np.random.default_rng(0).integers(0, len(values), (200, len(values)))
    low, high = np.quantile(sample[draws].mean(axis=1), [0.025, 0.975])
    return Interval(float(sample.mean()), float(low), float(high), len(values))


BINOMIAL_ERROR = 3.5 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / NUM_TRIALS)


@pytest.mark.parametrize("num_seeds", range(2, 11))
def test_an_interval_covers_what_it_says_for_normal_values(num_seeds: int) -> None:
    assert coverage(mean_interval, normal, num_seeds) == pytest.approx(CONFIDENCE, abs=BINOMIAL_ERROR)


@pytest.mark.parametrize("num_seeds", range(2, 11))
def test_an_interval_covers_nearly_what_it_says_for_mildly_skewed_values(num_seeds: int) -> None:
    assert abs(coverage(mean_interval, mildly_skewed, num_seeds) - CONFIDENCE) < SKEW_ALLOWANCE + BINOMIAL_ERROR


@pytest.mark.parametrize(("num_seeds", "at_most"), [(2, 0.60), (3, 0.80), (5, 0.90), (10, 0.93)])
def test_a_percentile_bootstrap_would_not_pass(num_seeds: int, at_most: float) -> None:
    assert coverage(percentile_bootstrap, normal, num_seeds) < at_most < CONFIDENCE - BINOMIAL_ERROR


@pytest.mark.parametrize("num_seeds", [2, 3, 5, 10])
def test_a_paired_interval_covers_where_seeds_have_effects_in_common_and_is_as_wide_as_what_they_do_not(
    num_seeds: int,
) -> None:
    generator = np.random.default_rng(num_seeds)
    covered, widths = 0, []
    for _ in range(NUM_TRIALS):
        common = generator.normal(0.0, 100.0, num_seeds)
        ours, theirs = (dict(enumerate(common + generator.normal(0.0, 1.0, num_seeds))) for _ in range(2))
        interval = paired_interval(ours, theirs)
        assert interval is not None
        covered += interval.has_zero
        widths.append(interval.high - interval.low)
    assert covered / NUM_TRIALS == pytest.approx(CONFIDENCE, abs=BINOMIAL_ERROR)
    assert np.median(widths) < 20  # 100 times that where the seeds' own effects were counted


# Over several tasks

TASKS = {1: [(0.7, 0.3)], 3: [(0.2, 0.05), (0.7, 0.14), (1.2, 0.4)], 8: [(0.1 * task, 0.2) for task in range(8)]}
"""Mean and deviation of normalised scores, by the number of tasks."""


def scores(num_tasks: int, num_runs: int, generator: np.random.Generator) -> np.ndarray:
    return np.array([generator.normal(*task, num_runs) for task in TASKS[num_tasks]])


@pytest.mark.parametrize("num_runs", [2, 3, 5, 10])
@pytest.mark.parametrize("num_tasks", list(TASKS))
def test_an_interval_over_tasks_covers_nearly_what_it_says(num_tasks: int, num_runs: int) -> None:
    true = interquartile_mean(scores(num_tasks, 20_000, np.random.default_rng(0)))
    generator, num_trials = np.random.default_rng(num_runs), 400
    found = [interquartile_interval(scores(num_tasks, num_runs, generator).tolist()) for _ in range(num_trials)]
    covered = sum(interval is not None and interval.low <= true <= interval.high for interval in found)
    assert covered / num_trials > 0.9  # 0.91 to 0.99; a stratified bootstrap of 2 runs covers 0.5 to 0.8


@pytest.mark.parametrize(("num_tasks", "num_runs"), [(1, 3), (3, 3), (8, 2), (8, 10)])
def test_a_difference_over_tasks_covers_nearly_what_it_says_with_scores_in_parts_of_what_the_other_side_has(
    num_tasks: int, num_runs: int
) -> None:
    shifts = [0.0, -0.3, 0.1, -0.1, 0.0, 0.2, -0.2, 0.0][:num_tasks]

    def sides(num_runs: int, generator: np.random.Generator) -> tuple[list[list[float]], list[list[float]]]:
        common, noise = generator.normal(0.0, 0.1, (num_tasks, num_runs)), (2, num_tasks, num_runs)
        ours, theirs = 1 + common + generator.normal(0.0, 0.15, noise)
        scale = theirs.mean(axis=1, keepdims=True)
        return ((ours + np.array(shifts)[:, None]) / scale).tolist(), (theirs / scale).tolist()

    mine, others = sides(20_000, np.random.default_rng(0))
    true = interquartile_mean(np.array(mine)) - interquartile_mean(np.array(others))
    generator, num_trials = np.random.default_rng(num_runs), 400
    found = [interquartile_difference(*sides(num_runs, generator)) for _ in range(num_trials)]
    covered = sum(interval is not None and interval.low <= true <= interval.high for interval in found)
    assert covered / num_trials > 0.9  # 0.93 to 0.99


def test_a_difference_over_tasks_of_one_task_is_that_of_its_pairs() -> None:
    # Three runs, of which none is cut.
    ours, theirs = [1.0, 12.0, 25.0], [0.0, 10.0, 20.0]
    difference = interquartile_difference([ours], [theirs])
    plain = paired_interval(dict(enumerate(ours)), dict(enumerate(theirs)))
    assert difference is not None
    assert plain is not None
    assert (difference.low, difference.high) == pytest.approx((plain.low, plain.high))
    assert interquartile_difference([[1.0]], [[2.0]]) is None


def test_an_interval_over_tasks_knows_where_it_knows_nothing() -> None:
    assert interquartile_interval([[1.0], [2.0, 3.0, 4.0, 5.0]]) is None
    assert interquartile_interval([[1.0, 2.0], [3.0, 4.0]]) is None
    nothing_is_cut, plain = interquartile_interval([[1.0, 2.0, 4.0]]), mean_interval([1.0, 2.0, 4.0])
    assert nothing_is_cut is not None
    assert plain is not None
    assert (nothing_is_cut.low, nothing_is_cut.high) == pytest.approx((plain.low, plain.high))


def test_an_interval_over_tasks_by_hand() -> None:
    """Of 0, 1, 2, 4, 5, 6 the ends become 1 and 5, and count for 6/4: variances 3 (1/3) (1.5)^2 / 36 each."""
    interval = interquartile_interval([[0.0, 1.0, 2.0], [4.0, 5.0, 6.0]])
    assert interval is not None
    assert interval.mean == 3.0
    # Two independent runs are left in each task: one degree of freedom each, so two in all.
    assert interval.high - 3.0 == pytest.approx(t_quantile(CONFIDENCE, 2) * math.sqrt(2 * 1.5**2 / 36))


# Numbers by hand


def test_the_interval_of_a_few_numbers_is_that_of_the_formula() -> None:
    # Mean 4, deviation 2, t 4.303 for two degrees of freedom: 4 +- 4.303 * 2 / sqrt(3).
    interval = mean_interval([2.0, 4.0, 6.0])
    assert interval is not None
    assert (interval.mean, interval.num_seeds) == (4.0, 3)
    assert (interval.low, interval.high) == pytest.approx((-0.968, 8.968), abs=1e-3)


def test_seeds_are_paired_by_number_and_those_of_one_side_left_out() -> None:
    # Differences 1 and 3, mean 2, deviation sqrt(2): 2 +- 12.706.
    interval = paired_interval({1: 11.0, 2: 23.0, 7: 1e9}, {2: 20.0, 1: 10.0, 8: 0.0})
    assert interval is not None
    assert (interval.mean, interval.num_seeds) == (2.0, 2)
    assert interval.high == pytest.approx(14.706, abs=1e-3)


def test_a_single_seed_has_no_interval() -> None:
    assert mean_interval([1.0]) is None
    assert paired_interval({1: 1.0}, {1: 2.0}) is None


def test_values_that_are_all_equal_are_no_knowledge_of_their_spread() -> None:
    interval = mean_interval([500.0, 500.0, 500.0])
    assert interval is not None
    assert interval.is_constant


def test_a_p_value_is_the_level_at_which_an_interval_touches_zero() -> None:
    values = [1.0, 2.5, 4.0, 0.5]
    p = p_value(values)
    assert p is not None
    touching = mean_interval(values, confidence=1 - p)
    assert touching is not None
    assert touching.low == pytest.approx(0.0, abs=1e-9)
    # t = 2 / (2 / sqrt(3)) = 1.732 with two degrees of freedom: p = 1 - t / sqrt(2 + t^2).
    assert p_value([0.0, 2.0, 4.0]) == pytest.approx(1 - math.sqrt(3 / 5))
    assert p_value([1.0]) is None
    assert p_value([1.0, 1.0]) is None


def test_several_are_shown_together_by_holms_procedure() -> None:
    # 0.01 < 0.05 / 4 and 0.015 < 0.05 / 3; 0.026 > 0.05 / 2 ends it, though 0.03 < 0.05.
    assert shown_together({"a": 0.03, "b": 0.01, "c": 0.026, "d": 0.015}) == ["b", "d"]
    assert shown_together({"a": 0.06}) == []
    assert shown_together({}) == []


@pytest.mark.parametrize(
    ("degrees", "t"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (5, 2.5706), (9, 2.2622), (30, 2.0423), (120, 1.9799)],
)
def test_quantiles_are_those_of_the_printed_tables(degrees: int, t: float) -> None:
    assert t_quantile(0.95, degrees) == pytest.approx(t, abs=5e-5)


def test_other_levels_too() -> None:
    assert t_quantile(0.99, 1) == pytest.approx(63.6567, abs=5e-5)
    assert t_quantile(0.90, 4) == pytest.approx(2.1318, abs=5e-5)
    assert t_quantile(0.99, 9) == pytest.approx(3.2498, abs=5e-5)


@pytest.mark.parametrize(("confidence", "degrees"), [(0.0, 3), (1.0, 3), (0.95, 0)])
def test_levels_and_degrees_that_there_are_not_are_refused(confidence: float, degrees: int) -> None:
    with pytest.raises(ValueError, match="must be between 0 and 1"):
        t_quantile(confidence, degrees)
