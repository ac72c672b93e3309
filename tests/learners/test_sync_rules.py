"""Sync rules against numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from htsrl.errors import ConfigError
from htsrl.learners.fixed import Fixed
from htsrl.learners.qsr import Qsr
from htsrl.learners.rule import Meeting, ReplicaReport, RuleFacts, SyncRule
from htsrl.learners.selsync import SelSync
from htsrl.learners.sync_switch import SyncSwitch

A, N, P, C = Meeting.AVERAGE, Meeting.NONE, Meeting.PUSH, Meeting.COLLECT


def meetings(rule: SyncRule, reports: Sequence[Sequence[ReplicaReport]]) -> list[Meeting]:
    """What a rule decides in one update after another, from what the replicas report of each."""
    state, decided = np.zeros(rule.state_size), []
    for update, of_update in enumerate(reports):
        meeting, state = rule.decide(update, state, of_update)
        assert state.shape == (rule.state_size,)
        decided.append(meeting)
    return decided


def at_rates(*rates: float) -> list[list[ReplicaReport]]:
    return [[ReplicaReport(rate, 1.0)] * 2 for rate in rates]


def with_norms(*norms: tuple[float, float]) -> list[list[ReplicaReport]]:
    return [[ReplicaReport(0.1, norm) for norm in of_update] for of_update in norms]


def test_fixed_averages_after_every_h_updates_and_after_the_last() -> None:
    rule = Fixed(Fixed.Settings(local_updates=3), RuleFacts(2, 8))
    assert meetings(rule, at_rates(*[0.1] * 8)) == [N, N, A, N, N, A, N, A]


@pytest.mark.parametrize(
    ("learning_rate", "expected"),
    [(0.008, 4), (0.004, 19), (0.002, 76), (0.00875, 4), (0.0175, 4), (0.1, 4), (0.0, 1000)],
)
def test_qsr_makes_rounds_as_long_as_the_square_of_alpha_over_the_learning_rate(
    learning_rate: float, expected: int
) -> None:
    # (0.0175 / 0.008)^2 = 4.785, (0.0175 / 0.004)^2 = 19.14, (0.0175 / 0.002)^2 = 76.56, (0.0175 / 0.00875)^2 = 4.
    rule = Qsr(Qsr.Settings(base_updates=4, alpha=0.0175), RuleFacts(4, 1000))
    assert rule.round_length(0, learning_rate, highest=learning_rate) == expected


def test_qsr_without_an_alpha_begins_with_its_base_and_grows_as_the_learning_rate_falls() -> None:
    rule = Qsr(Qsr.Settings(base_updates=2), RuleFacts(2, 100))
    assert rule.round_length(0, 0.1, highest=0.1) == 2
    assert rule.round_length(9, 0.05, highest=0.1) == 8  # 2 x (0.1 / 0.05)^2
    assert rule.round_length(9, 0.07, highest=0.1) == 4  # 2 x 2.04
    assert rule.round_length(97, 0.01, highest=0.1) == 3  # the last round is shortened


def test_qsr_keeps_a_rounds_length_from_where_it_began_and_shortens_the_last() -> None:
    rule = Qsr(Qsr.Settings(base_updates=1, alpha=0.1), RuleFacts(2, 9))
    rates = at_rates(0.1, 0.1, 0.05, 0.01, 0.01, 0.01, 0.02, 0.02, 0.02)
    # H: 1, 1, then 4 at 0.05 although the rate falls meanwhile, then 25 at 0.02, of which 3 are left.
    assert meetings(rule, rates) == [A, A, N, N, N, A, N, N, A]


def test_qsr_warms_up_with_its_base() -> None:
    rule = Qsr(Qsr.Settings(base_updates=2, alpha=0.1, warmup_updates=3), RuleFacts(2, 8))
    # In warm-up (0.1 / 0.02)^2 = 25 does not count; the round that begins at update 4 has the four that are left.
    assert meetings(rule, at_rates(*[0.02] * 8)) == [N, A, N, A, N, N, N, A]


def test_selsync_smooths_by_age() -> None:
    rule = SelSync(SelSync.Settings(window=3, decay=0.5), RuleFacts(1, 100))
    # (1 x 4 + 0.5 x 2 + 0.25 x 1) / 1.75
    assert rule.smoothed(np.array([4.0, 2.0, 1.0])) == pytest.approx(3.0)


def test_selsync_averages_where_any_replicas_smoothed_norm_changes_by_more_than_delta() -> None:
    rule = SelSync(SelSync.Settings(window=2, decay=1.0, delta=0.3), RuleFacts(2, 100))
    # Replica 1's means over two: 1, 1, then 1.25, 1.75 (by 0.4 of 1.25), 2 (0.14), 1.5 (0.25).
    norms = [(1.0, 1.0), (1.0, 1.0), (1.0, 1.0), (1.0, 1.5), (1.0, 2.0), (1.0, 2.0), (1.0, 1.0)]
    assert meetings(rule, with_norms(*norms)) == [A, A, N, N, A, N, N]


def test_selsync_at_the_very_delta_does_not_average() -> None:
    rule = SelSync(SelSync.Settings(window=2, decay=1.0, delta=0.5), RuleFacts(1, 100))
    reports = [[ReplicaReport(0.1, norm)] for norm in (1.0, 1.0, 2.0, 2.0 + 1e-9)]
    assert meetings(rule, reports) == [A, A, N, N]  # 1 -> 1.5 is 0.5, 1.5 -> 2 is 0.333
    reports = [[ReplicaReport(0.1, norm)] for norm in (1.0, 1.0, 2.0 + 1e-9)]
    assert meetings(rule, reports) == [A, A, A]


def test_selsync_notices_a_gradient_that_comes_back_from_nothing() -> None:
    rule = SelSync(SelSync.Settings(window=2), RuleFacts(1, 100))
    reports = [[ReplicaReport(0.1, norm)] for norm in (0.0, 0.0, 0.0, 1e-9)]
    assert meetings(rule, reports) == [A, A, N, A]


def test_sync_switch_is_synchronous_for_its_share_and_then_pushes() -> None:
    rule = SyncSwitch(SyncSwitch.Settings(switch_share=0.25, momentum_factor=0.5), RuleFacts(4, 8))
    assert meetings(rule, at_rates(*[0.1] * 8)) == [A, A, P, P, P, P, P, C]
    assert [rule.learning_rate_factor(update) for update in (0, 1, 2, 7)] == [1.0, 1.0, 0.25, 0.25]
    assert [rule.momentum_factor(update) for update in (0, 1, 2, 3)] == [1.0, 1.0, 0.5, 1.0]


def test_sync_switch_takes_the_learning_rate_that_it_is_given_and_is_synchronous_once_at_least() -> None:
    rule = SyncSwitch(SyncSwitch.Settings(switch_share=0.0, learning_rate_factor=0.7), RuleFacts(4, 3))
    assert rule.switch_update == 1
    assert rule.learning_rate_factor(1) == 0.7


@pytest.mark.parametrize(
    ("rule", "settings", "complaint"),
    [
        (Fixed, {"local_updates": 0}, "local_updates=0"),
        (Qsr, {"alpha": 0.0}, "alpha=0"),
        (Qsr, {"base_updates": 0}, "base_updates=0"),
        (Qsr, {"warmup_updates": -1}, "warmup_updates=-1"),
        (SelSync, {"delta": -0.1}, "delta=-0.1"),
        (SelSync, {"window": 1}, "window=1"),
        (SelSync, {"decay": 0.0}, "decay=0"),
        (SyncSwitch, {"switch_share": 1.5}, "switch_share=1.5"),
        (SyncSwitch, {"learning_rate_factor": 0.0}, "learning_rate_factor=0"),
        (SyncSwitch, {"momentum_factor": 2.0}, "momentum_factor=2"),
    ],
)
def test_a_rule_refuses_settings_that_cannot_work(rule: Any, settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        rule(rule.Settings(**settings), RuleFacts(2, 10)).check()
