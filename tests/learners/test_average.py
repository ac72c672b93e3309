"""What replicas continue from after a meeting, worked out by hand, and in a fixed order."""

from __future__ import annotations

import numpy as np
import torch

from htsrl.learners.average import Moments, mean_in_order, pooled_in_order, pushed_in_order
from htsrl.policies.normalization import RewardScale, RunningMoments, places_of_moments


def test_the_mean_is_summed_from_the_first_replica_to_the_last() -> None:
    # In float32, 1 is lost beside 1e8 if it comes after it, and is not if it comes when that is gone again.
    drafts = [np.array([x], np.float32) for x in (1e8, 1.0, -1e8, 1.0)]
    out = np.empty(1, np.float32)
    mean_in_order(drafts, out)
    assert out.tolist() == [0.25]
    mean_in_order([drafts[0], drafts[2], drafts[1], drafts[3]], out)
    assert out.tolist() == [0.5]


def test_the_mean_of_three_is_a_division_and_no_product_with_a_rounded_third() -> None:
    out = np.empty(1, np.float32)
    mean_in_order([np.array([5.0], np.float32)] * 3, out)
    assert out.tolist() == [5.0]


def test_replicas_push_one_after_another_and_each_pulls_what_it_finds() -> None:
    starts = [np.array([10.0]), np.array([20.0]), np.array([30.0])]  # the last replica's are the common parameters
    drafts = [np.array([11.0]), np.array([22.0]), np.array([33.0])]
    outs = [np.empty(1) for _ in range(3)]
    pushed_in_order(starts, drafts, outs)
    assert [out.tolist() for out in outs] == [[31.0], [33.0], [36.0]]
    assert [start.tolist() for start in starts] == [[10.0], [20.0], [30.0]]


def test_pooled_moments_are_those_of_all_that_was_seen() -> None:
    samples = torch.randn(2, 100, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    each, both = [RunningMoments((3,)), RunningMoments((3,))], RunningMoments((3,))
    for moments, seen in zip(each, samples, strict=True):
        moments.take_in(seen)
    both.take_in(samples.reshape(200, 3))
    flat = [np.concatenate([m.count.reshape(1), m.mean, m.variance]) for m in each]
    outs = [np.empty(7), np.empty(7)]
    pooled_in_order(flat, [Moments(slice(0, 1), slice(1, 4), slice(4, 7))], outs)
    assert np.array_equal(outs[0], outs[1])
    np.testing.assert_allclose(outs[0][1:4], both.mean.numpy())
    np.testing.assert_allclose(outs[0][4:], both.variance.numpy())
    assert outs[0][0] == 100  # as each has seen: what they saw together before counts once


def test_returns_under_way_stay_each_replicas_own() -> None:
    module = RewardScale(num_columns=2)
    (place,) = places_of_moments(module)
    own = [np.array([7.0, 8.0, 1.0, 2.0, 3.0]), np.array([5.0, 6.0, 1.0, 4.0, 3.0])]
    assert place == Moments(slice(2, 3), slice(3, 4), slice(4, 5))
    outs = [np.empty(5), np.empty(5)]
    pooled_in_order(own, [place], outs)
    assert [out[:2].tolist() for out in outs] == [[7.0, 8.0], [5.0, 6.0]]
    assert outs[0][2:].tolist() == outs[1][2:].tolist() == [1.0, 3.0, 4.0]
