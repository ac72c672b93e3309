"""Gradients in shards, and kills of those who take them and of the learner who orders them: no bit changes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
from combinations import combination
from helpers import run
from interleavings import blueprint_of, work_in_any_order

from htsrl import A2C, Experiment
from htsrl.dataflow.gradient_orders import GradientOrders
from htsrl.digest import Link, first_difference

NUM_UPDATES = 6
KILL_ODDS = 0.003
SHARDS = {"lstm_ppo": 2, "gru_a2c": 3, "team_mask_lstm": 3}
NUM_SEEDS = 3


def sharded(name: str) -> Experiment:
    experiment = replace(combination(name, NUM_UPDATES), gradient_shards=SHARDS[name])
    return replace(experiment, algorithm=A2C(unroll_length=5)) if name == "gru_a2c" else experiment


@cache
def oracle_of(name: str) -> list[Link]:
    """Where the learner takes all shards itself."""
    return run(sharded(name)).links


@pytest.mark.parametrize("name", SHARDS)
def test_whoever_of_the_learner_and_its_differentiators_is_killed_between_any_two_lines_no_bit_changes(
    name: str,
) -> None:
    blueprint, killed = blueprint_of(sharded(name)), Counter[str]()
    for seed in range(NUM_SEEDS):
        links, kills = work_in_any_order(blueprint, seed, KILL_ODDS)
        killed += Counter(kills)
        assert first_difference(links, oracle_of(name)) is None, f"seed {seed}, kills of {kills}"
    assert killed["learner"] > 3
    assert killed["differentiator 1"] > 3


def test_a_learner_that_does_not_wait_for_the_answers_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the test above can fail."""
    monkeypatch.setattr(GradientOrders, "unanswered", lambda self: [])
    links, _ = work_in_any_order(blueprint_of(sharded("lstm_ppo")), seed=0, kill_odds=0.0)
    assert first_difference(links, oracle_of("lstm_ppo")) is not None
