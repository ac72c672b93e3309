"""Why a run ended is said, and what it ended by can be lifted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from htsrl import A2C, PPO, Config, ConfigError, Experiment, Placement, RunResult, resume, train

EXPERIMENT = Experiment(
    "CartPole-v1", {"max_episode_steps": 2}, algorithm=A2C(), num_envs=4, sync_interval=16, total_steps=512
)


def train_in(run_dir: Path, experiment: Experiment = EXPERIMENT, **placement: Any) -> RunResult:
    settings: dict[str, Any] = {"backend": "inline", "tensorboard": False, "progress": "off", **placement}
    return train(Config(experiment, Placement(run_dir=run_dir, **settings)))


def test_a_run_that_reached_its_return_says_so_and_goes_on_when_the_limit_is_lifted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result = train_in(tmp_path / "run", replace(EXPERIMENT, stop_at_return=1.0))
    assert result.goal_reached
    assert 0 < result.updates < EXPERIMENT.num_intervals
    assert json.loads((tmp_path / "run" / "result.json").read_text())["goal_reached"]
    said = capfd.readouterr().err
    assert f"stopped after update {result.updates}: the mean return of" in said
    assert "reached stop_at_return=1; `htsrl resume" in said
    with pytest.raises(ConfigError, match="--stop-at-return none"):
        resume(tmp_path / "run")
    lifted = resume(tmp_path / "run", stop_at_return=None)
    assert (lifted.updates, lifted.goal_reached) == (EXPERIMENT.num_intervals, False)
    assert lifted.digest == train_in(tmp_path / "never limited").digest


def test_a_longer_run_says_what_becomes_of_its_learning_rate(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    train_in(tmp_path / "run")
    capfd.readouterr()
    resume(tmp_path / "run", total_steps=1024)
    said = capfd.readouterr().err
    assert "total_steps=1,024 instead of 512 stretches the annealing: the learning rate, 0 at update 8 until" in said
    assert "continues from 0.00035" in said


def test_so_it_does_of_an_annealed_clip_range(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    algorithm = PPO(epochs=1, num_minibatches=1, anneal_clip_range=True, anneal_learning_rate=False)
    train_in(tmp_path / "run", replace(EXPERIMENT, algorithm=algorithm))
    capfd.readouterr()
    resume(tmp_path / "run", total_steps=1024)
    said = capfd.readouterr().err
    assert "the clip range, 0 at update 8 until now, continues from 0.1 and falls to 0" in said
    assert "learning rate" not in said


def test_without_annealing_nothing_is_said_of_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    train_in(tmp_path / "run", replace(EXPERIMENT, algorithm=A2C(anneal_learning_rate=False)))
    resume(tmp_path / "run", total_steps=576)
    assert "annealing" not in capfd.readouterr().err
