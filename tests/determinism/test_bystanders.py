"""Whatever watches a run, or ran before it in the same process, leaves its digest alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import Outcome, assert_same_run, run
from small_experiments import oracle, small_experiment

from htsrl import Config, Placement, evaluate, train


@pytest.fixture
def settings_of_torch_restored() -> Iterator[None]:
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


def global_random_states() -> tuple[object, ...]:
    numpy_state = np.random.get_state(legacy=False)["state"]
    return random.getstate(), numpy_state["pos"], numpy_state["key"].tobytes(), torch.get_rng_state().tolist()


@pytest.mark.parametrize(
    "shown",
    [
        {"log_every_steps": 1},
        {"log_every_steps": 10**9},
        {"tensorboard": True},
        {"progress": "plain"},
        {"progress": "live"},
        {"progress": "auto"},
    ],
    ids=str,
)
def test_what_is_logged_and_shown_does_not_change_the_digest(shown: dict[str, Any]) -> None:
    outcome = run(small_experiment("cartpole_a2c"), **shown)
    assert outcome.digest == oracle("cartpole_a2c").digest
    assert outcome.policy == oracle("cartpole_a2c").policy


def test_evaluation_changes_neither_the_run_nor_the_next_one(tmp_path: Path) -> None:
    placement = Placement(backend="inline", tensorboard=False, progress="off", run_dir=tmp_path / "run")
    train(Config(small_experiment("pixels_a2c"), placement))
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    for sampled in (False, True):
        evaluate(tmp_path / "run", episodes=3, sampled=sampled)
    assert before == {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert_same_run(Outcome.read(tmp_path / "run"), oracle("pixels_a2c"))
    assert_same_run(run(small_experiment("pixels_a2c")), oracle("pixels_a2c"))


@pytest.mark.usefixtures("settings_of_torch_restored")
@pytest.mark.parametrize("num_threads", [1, 2])
def test_the_callers_number_of_threads_changes_no_digest_and_is_left_as_it_was(num_threads: int) -> None:
    torch.set_num_threads(num_threads)
    torch.randn(256, 256) @ torch.randn(256, 256)
    outcome = run(small_experiment("pixels_a2c"))
    assert torch.get_num_threads() == num_threads
    assert not torch.are_deterministic_algorithms_enabled()
    assert_same_run(outcome, oracle("pixels_a2c"))


@pytest.mark.parametrize("global_seed", [0, 1])
def test_global_random_generators_are_neither_used_nor_moved(global_seed: int) -> None:
    random.seed(global_seed)
    np.random.seed(global_seed)
    torch.manual_seed(global_seed)
    before = global_random_states()
    outcome = run(small_experiment("cartpole_ppo"))
    assert global_random_states() == before
    assert_same_run(outcome, oracle("cartpole_ppo"))
