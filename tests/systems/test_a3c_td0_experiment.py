"""The arithmetic of A3C-TD(0)'s experiment."""

from __future__ import annotations

import math

import pytest

from htsrl_bench.systems.a3c_td0 import Goal, Reached, UntilReached, relative_samples


def test_samples_are_compared_within_pairs_of_seed_and_process() -> None:
    """Twice and half as many are, as a geometric mean, as many; a process that is ten times as hard counts the same."""
    samples = {(1, 1): (100, 200), (1, 2): (100, 50), (2, 1): (1000, 2000), (2, 2): (1000, 500)}
    reached = [
        Reached(mdp_seed, workers, seed, of[workers != 1], is_reached=True)
        for (mdp_seed, seed), of in samples.items()
        for workers in (1, 16)
    ]
    interval = relative_samples(reached, 16, 1)
    assert interval.mean == pytest.approx(1.0)
    assert interval.high == pytest.approx(1 / interval.low)
    assert interval.high == pytest.approx(math.exp(3.182446 * math.log(2) * math.sqrt(4 / 3) / 2), rel=1e-5)
    assert relative_samples(reached, 1, 1).mean == 1.0


def test_the_target_lies_on_the_way_that_the_long_run_went() -> None:
    assert Goal(1, chance=0.1, pilot=0.5, best=0.9, share=0.25).objective == pytest.approx(0.2)


def test_nothing_is_reached_before_it_was_measured() -> None:
    assert UntilReached(-1.0).samples is None
