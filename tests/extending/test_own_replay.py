"""An off-policy algorithm of one's own, from the replay buffer, runs through kills, shards, resumes and export."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Outcome, assert_same_run, run
from path_consistency import PathConsistency

from htsrl import Config, Experiment, Placement, load_policy, resume, train
from htsrl.config.algorithm_settings import algorithm_name
from htsrl.observers.observer import ObservedRun, Observer, UpdateEvent
from htsrl.processes.kill_points import KILL_AT, KILL_ONCE

EXPERIMENT = Experiment(
    "CartPole-v1",
    {"max_episode_steps": 15},
    algorithm=PathConsistency.Settings(),
    num_envs=2,
    total_steps=15 * 16,
    gradient_shards=2,
)


def quietly(run_dir: Path, **settings: Any) -> Placement:
    defaults: dict[str, Any] = {"backend": "inline", "tensorboard": False, "progress": "off"}
    return Placement(**(defaults | {"run_dir": run_dir} | settings))


class StopsAt(Observer):
    def on_start(self, run: ObservedRun) -> None:
        self._run = run

    def on_update(self, event: UpdateEvent) -> None:
        if event.version >= 4:
            self._run.stop("enough")


def test_kills_shards_and_a_resume_change_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert algorithm_name(EXPERIMENT.algorithm) == "path_consistency:PathConsistency"
    oracle = run(EXPERIMENT)
    monkeypatch.setenv(KILL_AT, "optimizer step:14, after a gradient order:20, inside a replay write:6")
    monkeypatch.setenv(KILL_ONCE, str(tmp_path / "killed"))
    placement = quietly(tmp_path / "run", backend="processes", num_executors=2, learner_workers=2)
    assert train(Config(EXPERIMENT, placement)).restarts == 3
    assert_same_run(Outcome.read(tmp_path / "run"), oracle)
    stopped = train(Config(EXPERIMENT, quietly(tmp_path / "stopped")), observers=[StopsAt()])
    assert stopped.updates < 15
    resume(tmp_path / "stopped")
    assert_same_run(Outcome.read(tmp_path / "stopped"), oracle)
    action, _ = load_policy(tmp_path / "stopped").act(np.zeros(4, np.float32))
    assert action in (0, 1)


def test_what_is_in_the_buffer_is_learned_from() -> None:
    smaller = replace(EXPERIMENT, algorithm=PathConsistency.Settings(replay_capacity=16))
    assert run(smaller).links[-1].parameters != run(EXPERIMENT).links[-1].parameters
