"""Activations that actors keep for the learner change no bit, and come back where a checkpoint left them out."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import Outcome, assert_same_run, run
from small_experiments import oracle, small_experiment

from htsrl import Config, Placement, resume, survey, train
from htsrl.checkpoint.files import newest_valid
from htsrl.digest import first_difference
from htsrl.roles.completion import Completion

NAME = "pixels_a2c"
LAST_BARRIERS = 3


def interrupted(run_dir: Path) -> None:
    """A run that ends before its last barriers."""
    experiment = small_experiment(NAME)
    placement = Placement("inline", tensorboard=False, progress="off", run_dir=run_dir, checkpoint_every_updates=1)

    class Enough(Exception):
        pass

    def stop_early(self: Completion, rollout: int) -> None:
        if rollout == experiment.num_intervals - LAST_BARRIERS:
            raise Enough
        add_last_values(self, rollout)

    add_last_values = Completion.add_last_values
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Completion, "add_last_values", stop_early)
        with pytest.raises(Enough):
            train(Config(experiment, placement))


def test_a_run_that_computes_everything_twice_has_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = oracle(NAME)
    monkeypatch.setattr(survey, "MOST_KEPT_BYTES", 0)
    assert_same_run(run(small_experiment(NAME), num_executors=1, num_actors=0), kept)


def test_a_checkpoint_leaves_out_what_follows_from_the_rest(tmp_path: Path) -> None:
    interrupted(tmp_path / "run")
    found = newest_valid(tmp_path / "run" / "checkpoints", lambda line: None)
    assert found is not None
    assert any(name.endswith("/obs") for name in found[1].arrays)
    assert not any("activations" in name for name in found[1].arrays)


def test_a_resumed_run_has_the_activations_that_its_checkpoint_lacks(tmp_path: Path) -> None:
    interrupted(tmp_path / "run")
    resume(tmp_path / "run")
    assert_same_run(Outcome.read(tmp_path / "run"), oracle(NAME))


def test_without_them_a_resumed_run_would_go_astray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(tmp_path / "run")
    monkeypatch.setattr(Completion, "add_activations", lambda self: None)
    resume(tmp_path / "run")
    assert first_difference(Outcome.read(tmp_path / "run").links, oracle(NAME).links) is not None
