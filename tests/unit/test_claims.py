"""Claims 1 and 2: formula, reference value and simulation agree."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from htsrl.envs.check.claims import (
    Barrier,
    StepTime,
    bound_steps_per_second,
    expected_gamma_maximum,
    expected_lag,
    expected_seconds,
    free_steps_per_second,
)
from htsrl.errors import ConfigError
from htsrl.planning.soft_barrier import hts_seconds
from htsrl_bench.simulations import (
    simulate_hts_steps_per_second,
    simulate_lag,
    simulate_steps_per_second,
)

EXPONENTIAL = StepTime(mean_seconds=0.005)
GAMMA = StepTime(mean_seconds=0.005, cv=0.25)

ALPHAS = (1, 2, 4, 8, 16, 64, 128)
REFERENCE = {
    16: (3.381, 2.587, 2.063, 1.718, 1.489, 1.233, 1.162),
    32: (4.059, 2.991, 2.309, 1.872, 1.589, 1.277, 1.192),
}


# Claim 1


@pytest.mark.parametrize("num_envs", REFERENCE)
def test_the_slowest_interval_matches_the_reference_table(num_envs: int) -> None:
    per_step = [expected_gamma_maximum(num_envs, alpha) / alpha for alpha in ALPHAS]

    assert per_step == pytest.approx(REFERENCE[num_envs], abs=0.0006)


@pytest.mark.parametrize("count", [1, 2, 5, 16, 100])
def test_the_largest_of_exponentials_is_a_harmonic_number(count: int) -> None:
    assert expected_gamma_maximum(count, shape=1) == pytest.approx(sum(1 / i for i in range(1, count + 1)), rel=1e-6)


@pytest.mark.parametrize("shape", [0.1, 0.5, 1, 7.3, 128, 2048, 100_000])
def test_the_largest_of_one_is_the_mean(shape: float) -> None:
    assert expected_gamma_maximum(1, shape) == pytest.approx(shape, rel=1e-6)


@pytest.mark.parametrize(
    ("step_time", "steps_per_second"),
    [(EXPONENTIAL, {1: 946, 5: 1655, 20: 2231, 128: 2753}), (GAMMA, {1: 2143, 5: 2647, 20: 2906, 128: 3079})],
)
def test_the_bound_matches_the_anchors(step_time: StepTime, steps_per_second: dict[int, float]) -> None:
    for alpha, anchor in steps_per_second.items():
        assert bound_steps_per_second(Barrier(16, alpha), step_time) == pytest.approx(anchor, rel=0.005)


def test_a_constant_step_time_has_no_barrier_to_fear() -> None:
    constant = StepTime(mean_seconds=0.005, cv=0)

    assert bound_steps_per_second(Barrier(16, 1), constant) == pytest.approx(3200)
    assert free_steps_per_second(16, constant) == pytest.approx(3200)


def test_actor_time_is_added_to_every_step() -> None:
    barrier = Barrier(num_envs=16, sync_interval=8, actor_seconds=0.001)

    # 1000 steps of each of 16 environments: 125 intervals of 8 * 1.718 * 5 ms, and 1000 answers of 1 ms.
    assert expected_seconds(16_000, barrier, EXPONENTIAL) == pytest.approx(125 * 8 * 1.718 * 0.005 + 1.0, rel=1e-3)
    assert bound_steps_per_second(barrier, EXPONENTIAL) == pytest.approx(16_000 / 9.59, rel=1e-3)


@pytest.mark.parametrize("step_time", [EXPONENTIAL, GAMMA, StepTime(0.005, cv=2.0), StepTime(0.005, cv=0)])
@pytest.mark.parametrize(("num_envs", "alpha", "intervals"), [(4, 1, 20_000), (16, 5, 4_000), (16, 128, 400)])
def test_the_bound_agrees_with_a_simulation(step_time: StepTime, num_envs: int, alpha: int, intervals: int) -> None:
    barrier = Barrier(num_envs, alpha, actor_seconds=0.0005)

    simulated = simulate_steps_per_second(barrier, step_time, intervals)

    assert simulated == pytest.approx(bound_steps_per_second(barrier, step_time), rel=0.02)


@pytest.mark.parametrize(
    "build",
    [lambda: StepTime(0.0), lambda: StepTime(1.0, cv=-1), lambda: Barrier(0, 5), lambda: Barrier(4, 0)],
)
def test_impossible_settings_are_refused(build: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match="must"):
        build()


# The barrier of htsrl


def test_an_environment_may_be_an_interval_ahead_but_not_two() -> None:
    # Environment 0 ends its rollouts at 1, 2, 4 (begun at 3, when 1 has ended its first) and 9; with a hard barrier
    # after every interval it would end at 3 + 1 + 1 + 5 = 10.
    seconds = np.array([[1.0, 3.0], [1.0, 1.0], [1.0, 1.0], [5.0, 1.0]])

    assert hts_seconds(seconds) == 9.0
    assert hts_seconds(seconds[:3]) == 5.0


@pytest.mark.parametrize("alpha", [5, 20, 128])
def test_htsrl_lies_between_claim_1_and_no_barrier(alpha: int) -> None:
    barrier = Barrier(16, alpha)

    simulated = simulate_hts_steps_per_second(barrier, EXPONENTIAL, num_intervals=1000)

    assert 1.1 * bound_steps_per_second(barrier, EXPONENTIAL) < simulated < free_steps_per_second(16, EXPONENTIAL)


# Claim 2


@pytest.mark.parametrize(("num_actors", "load", "lag"), [(1, 0.5, 1.0), (16, 0.05, 4.0), (9, 0.1, 9.0), (4, 0.0, 0.0)])
def test_the_lag_has_the_value_of_the_formula(num_actors: int, load: float, lag: float) -> None:
    assert expected_lag(num_actors, load) == pytest.approx(lag)


@pytest.mark.parametrize("load", [0.25, 0.3])
def test_a_learner_that_cannot_keep_up_has_no_bound(load: float) -> None:
    assert expected_lag(4, load) == math.inf


@pytest.mark.parametrize(("num_actors", "load"), [(1, 0.5), (4, 0.2), (16, 0.03), (16, 0.05)])
def test_the_lag_agrees_with_a_simulation(num_actors: int, load: float) -> None:
    simulated = simulate_lag(num_actors, load, updates_per_actor=2_000_000 // num_actors)

    assert simulated == pytest.approx(expected_lag(num_actors, load), rel=0.02)
