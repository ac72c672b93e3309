"""Law 2 for gradients in shards: how many processes take them changes no bit, how many shards there are does."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from combinations import COMBINATIONS, combination
from helpers import Outcome, assert_same_run, run
from small_experiments import EXPERIMENTS

from htsrl import A2C, PPO, Experiment
from htsrl.digest import first_difference

NUM_UPDATES = 6
LAG_CORRECTIONS = {
    "decoupled_ppo": replace(
        EXPERIMENTS["cartpole_ppo"],
        algorithm=PPO(epochs=2, lag_correction="decoupled", advantage_normalization="batch"),
    ),
    "delayed_ppo": replace(
        EXPERIMENTS["normalized_ppo"],
        algorithm=PPO(epochs=2, num_minibatches=4, normalize_rewards=True, lag_correction="delayed_update"),
    ),
}
LAYOUTS: list[tuple[str, int, dict[str, Any]]] = [
    ("cartpole_ppo", 2, {"learner_workers": 1}),
    ("cartpole_ppo", 2, {"learner_workers": 2}),
    ("cartpole_a2c", 3, {"learner_workers": 3, "jitter_seconds": 2e-3}),
    ("normalized_ppo", 4, {"learner_workers": 2, "verify_storages": True}),
    ("decoupled_ppo", 2, {"learner_workers": 2}),
    ("delayed_ppo", 2, {"learner_workers": 2, "verify_storages": True}),
    ("pixels_a2c", 3, {"learner_workers": 2}),
    ("dict_mask_lstm", 2, {"learner_workers": 2, "jitter_seconds": 2e-3}),
    ("gru_a2c", 3, {"learner_workers": 3}),
    ("team_mask_lstm", 3, {"learner_workers": 2, "verify_storages": True}),
]


def experiment(name: str, gradient_shards: int) -> Experiment:
    if name in LAG_CORRECTIONS:
        return replace(LAG_CORRECTIONS[name], gradient_shards=gradient_shards)
    chosen = EXPERIMENTS[name] if name in EXPERIMENTS else combination(name, NUM_UPDATES)
    return replace(chosen, gradient_shards=gradient_shards)


@cache
def oracle(name: str, gradient_shards: int) -> Outcome:
    """The learner takes all shards itself, one after another, in this process."""
    return run(experiment(name, gradient_shards))


@pytest.mark.parametrize(
    ("name", "gradient_shards", "worker_layout"),
    [pytest.param(*case, id=f"{case[0]}-S{case[1]}-W{case[2]['learner_workers']}") for case in LAYOUTS],
)
def test_the_number_of_processes_that_take_gradients_does_not_change_the_digest(
    name: str, gradient_shards: int, worker_layout: dict[str, Any]
) -> None:
    outcome = run(experiment(name, gradient_shards), backend="processes", num_executors=1, **worker_layout)
    assert_same_run(outcome, oracle(name, gradient_shards))


@pytest.mark.parametrize(
    "name", ["cartpole_ppo", "cartpole_a2c", *(name for name in COMBINATIONS if "gru" not in name)]
)
def test_the_number_of_shards_changes_the_last_bits_and_nothing_else(name: str) -> None:
    """The first update learns from the same batch, and comes to the same numbers but for rounding."""
    whole, halves = oracle(name, 1), oracle(name, 2)
    difference = first_difference(whole.links, halves.links)
    assert difference == "barrier 0: the batches are equal, the parameters after the update are not"
    assert whole.metrics[0] == pytest.approx(halves.metrics[0], rel=1e-3, abs=1e-4, nan_ok=True)


def test_the_unrolls_of_an_interval_are_cut_into_shards_one_by_one() -> None:
    two_unrolls = replace(
        experiment("cartpole_a2c", 3), algorithm=A2C(unroll_length=5, normalize_advantages=True), sync_interval=10
    )
    outcome = run(two_unrolls, backend="processes", num_executors=1, learner_workers=2)
    assert_same_run(outcome, run(two_unrolls))
