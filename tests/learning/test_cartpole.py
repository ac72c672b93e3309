"""Agents learn: the whole way from a configuration to a policy that balances the pole."""

from __future__ import annotations

from pathlib import Path

import pytest

from htsrl import A2C, PPO, Config, Experiment, Placement, evaluate, train


@pytest.mark.parametrize("schedule", ["hts", pytest.param("sync", marks=pytest.mark.slow)])
def test_ppo_solves_cartpole(tmp_path: Path, schedule: str) -> None:
    experiment = Experiment("CartPole-v1", algorithm=PPO(), schedule=schedule, total_steps=122_880)
    train(Config(experiment, Placement("inline", run_dir=tmp_path / "run", tensorboard=False, progress="off")))
    assert evaluate(tmp_path / "run", episodes=20).mean_return >= 475


def test_a2c_with_the_delayed_gradient_learns_cartpole(tmp_path: Path) -> None:
    experiment = Experiment("CartPole-v1", algorithm=A2C(), total_steps=60_000)
    result = train(Config(experiment, Placement("inline", run_dir=tmp_path / "run", tensorboard=False, progress="off")))
    assert result.mean_return is not None
    assert result.mean_return >= 150
