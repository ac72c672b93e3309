"""Activations that actors keep for the learner change no bit, and come back where a checkpoint left them out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from helpers import Outcome, assert_same_run, run
from interrupted_runs import interrupted
from small_experiments import oracle, small_experiment

from htsrl import Experiment, Network, resume
from htsrl.checkpoint.files import newest_valid
from htsrl.digest import first_difference
from htsrl.placements import surveyed
from htsrl.roles.rollout_finisher import RolloutFinisher

NAME = "pixels_a2c"
LATE = small_experiment(NAME).num_intervals - 3


def with_envs(num_envs: int, schedule: Literal["hts", "sync"] = "hts") -> Experiment:
    """Of some numbers of environments, no batch has the size."""
    return replace(small_experiment(NAME, schedule), num_envs=num_envs, total_steps=num_envs * 5 * 8)


def test_a_run_that_computes_everything_twice_has_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = oracle(NAME)
    monkeypatch.setattr(surveyed, "MAX_KEPT_BYTES", 0)
    assert_same_run(run(small_experiment(NAME), num_executors=1, num_actors=0), kept)


@pytest.mark.parametrize("num_envs", [3, 7])
def test_processes_agree_whatever_the_number_of_environments(num_envs: int) -> None:
    experiment = with_envs(num_envs)
    inline = run(experiment, num_executors=1, num_actors=0)
    assert_same_run(run(experiment, backend="processes", num_executors=num_envs, num_actors=1), inline)


@pytest.mark.parametrize("recurrent", ["none", "gru"])
def test_shards_are_taken_from_what_was_kept_by_whoever_takes_them(recurrent: Literal["none", "gru"]) -> None:
    network = Network(recurrent=recurrent, recurrent_size=8)
    experiment = replace(small_experiment(NAME), gradient_shards=3, network=network, total_steps=8 * 5 * 5)
    inline = run(experiment, num_executors=1, num_actors=0)
    assert_same_run(run(experiment, backend="processes", num_executors=2, learner_workers=3), inline)


def test_a_checkpoint_leaves_out_what_follows_from_the_rest(tmp_path: Path) -> None:
    interrupted(small_experiment(NAME), LATE, num_executors=2, run_dir=tmp_path / "run")
    found = newest_valid(tmp_path / "run" / "checkpoints", lambda line: None)
    assert found is not None
    assert any(name.endswith("/obs") for name in found[1].arrays)
    assert not any("activations" in name for name in found[1].arrays)


@pytest.mark.parametrize("schedule", ["hts", "sync"])
@pytest.mark.parametrize("num_envs", [3, 8])
def test_a_resumed_run_has_the_activations_that_its_checkpoint_lacks(
    tmp_path: Path, num_envs: int, schedule: Literal["hts", "sync"]
) -> None:
    experiment = with_envs(num_envs, schedule)
    interrupted(experiment, experiment.num_intervals - 3, num_executors=2, run_dir=tmp_path / "run")
    resume(tmp_path / "run")
    assert_same_run(Outcome.read(tmp_path / "run"), run(experiment))


def test_a_run_may_be_resumed_where_some_environments_are_ahead(tmp_path: Path) -> None:
    """Under hts environments may be up to two rollouts beyond the version; here the learner did not take even one."""
    experiment = with_envs(3)
    interrupted(experiment, before_update=0, num_executors=3, num_actors=1, run_dir=tmp_path / "run")
    resume(tmp_path / "run")
    assert_same_run(Outcome.read(tmp_path / "run"), run(experiment))


def test_without_them_a_resumed_run_would_go_astray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(small_experiment(NAME), LATE, num_executors=2, run_dir=tmp_path / "run")
    monkeypatch.setattr(RolloutFinisher, "add_activations", lambda self: None)
    resume(tmp_path / "run")
    assert first_difference(Outcome.read(tmp_path / "run").links, oracle(NAME).links) is not None
