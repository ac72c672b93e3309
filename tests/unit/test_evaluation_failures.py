"""Evaluating what cannot be evaluated: one error that says why."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from htsrl import A2C, Config, EnvironmentFailure, Experiment, Network, Placement, RunFolderError, evaluate, train
from htsrl.policies.policy import build_policy
from htsrl.runs.folder import RunFolder


class Spoiled(gymnasium.Env[Any, Any]):
    """Sound for a few steps; `nan_at` one of them it is not."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, nan_at: int | None = None) -> None:
        self._nan_at = nan_at

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        seen = np.full(2, np.nan if self._steps == self._nan_at else 0.5, np.float32)
        return seen, 1.0, self._steps == 9, False, {}


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    experiment = Experiment(Spoiled, algorithm=A2C(), num_envs=2, total_steps=40)
    train(Config(experiment, Placement("inline", run_dir=tmp_path / "run", tensorboard=False, progress="off")))
    return tmp_path / "run"


def test_an_environment_that_fails_is_blamed_with_step_and_episode(run_dir: Path) -> None:
    assert evaluate(run_dir, episodes=2, env=Spoiled).returns == (9.0, 9.0)
    with pytest.raises(EnvironmentFailure, match=r"broke a rule in step\([01]\) at step 4 of evaluation episode 0"):
        evaluate(run_dir, episodes=2, env=lambda: Spoiled(nan_at=5))


def test_a_run_that_never_learned_has_no_score(run_dir: Path) -> None:
    shutil.rmtree(run_dir / "checkpoints")
    policy = build_policy(Spoiled.observation_space, Spoiled.action_space, Network(), seed=1)
    RunFolder(run_dir).save_policy(policy, version=0)
    with pytest.raises(RunFolderError, match="ended before its first update"):
        evaluate(run_dir, episodes=1, env=Spoiled)
