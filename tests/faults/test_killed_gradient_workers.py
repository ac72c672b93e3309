"""Gradients in shards, and kills of those who take them and of the learner who orders them: no bit changes."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from combinations import combination
from helpers import Outcome, assert_same_run, run
from interleavings import assert_kills_change_nothing, blueprint_of, work_in_any_order
from live_run import patience
from small_run import oracle, quiet_placement, small_experiment

from htsrl import A2C, Config, Experiment, train
from htsrl.dataflow.gradient_orders import GradientOrders
from htsrl.digest import Link, first_difference
from htsrl_bench.process_tree import workers_named

NUM_UPDATES = 6
SHARDS = {"lstm_ppo": 2, "gru_a2c": 3, "team_mask_lstm": 3}


def sharded(name: str) -> Experiment:
    experiment = replace(combination(name, NUM_UPDATES), gradient_shards=SHARDS[name])
    return replace(experiment, algorithm=A2C(unroll_length=5)) if name == "gru_a2c" else experiment


@cache
def oracle_of(name: str) -> list[Link]:
    """Where the learner takes all shards itself."""
    return run(sharded(name)).links


@pytest.mark.parametrize("name", SHARDS)
def test_whoever_of_the_learner_and_its_gradient_workers_is_killed_between_any_two_lines_no_bit_changes(
    name: str,
) -> None:
    wanted = {"learner": 4, "gradient worker 1": 4}
    assert_kills_change_nothing(blueprint_of(sharded(name)), oracle_of(name), wanted, min_runs=2)


@pytest.mark.parametrize("name", ["gru_a2c", "lstm_ppo"])
def test_a_learner_that_does_not_wait_for_the_answers_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the test above can fail."""
    monkeypatch.setattr(GradientOrders, "unanswered", lambda self: [])
    links, _ = work_in_any_order(blueprint_of(sharded(name)), seed=0, kill_odds=0.0)
    assert first_difference(links, oracle_of(name)) is not None


class Stopper(threading.Thread):
    """Stops the gradient worker of a run of this process once something was learned."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__(daemon=True)
        self._metrics_file = run_dir / "metrics.jsonl"

    def run(self) -> None:
        while not (self._metrics_file.exists() and self._metrics_file.read_text()):
            time.sleep(0.02)
        (pid,) = workers_named("gradient", os.getpid())
        os.kill(pid, signal.SIGSTOP)


@pytest.mark.slow
def test_a_gradient_worker_that_is_stopped_is_replaced_after_the_deadline_and_the_learner_is_not(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Stopper(tmp_path / "run").start()
    placement = quiet_placement(
        num_executors=1, learner_workers=2, run_dir=tmp_path / "run", deadline_seconds=patience(6.0)
    )
    train(Config(small_experiment(1000, gradient_shards=2), placement))
    said = capfd.readouterr().err
    assert re.search(
        r"^gradient worker 1 \(pid \d+\) got nowhere for .*; gradient worker 1 is started again", said, re.M
    )
    assert said.count("is started again") == 1
    assert_same_run(Outcome.read(tmp_path / "run"), oracle(1000, gradient_shards=2))
