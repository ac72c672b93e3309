"""A loss or gradient that is not finite ends the run before it moves anything, and what caused it is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from safetensors.numpy import load_file

from htsrl import A2C, PPO, Config, Experiment, Placement, TrainingDiverged, train
from htsrl.algorithms.a2c import algorithm as a2c
from htsrl.algorithms.optimizers import Adam, Optimizer, RmsProp
from htsrl.algorithms.ppo import algorithm as ppo
from htsrl.checkpoint.files import newest_valid
from htsrl.digest import read_links

UPDATE = 3  # the one that diverges


def train_until_it_diverges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: Literal["a2c", "ppo"], poison: float
) -> Path:
    """Add `poison` to the loss of one update, at its second minibatch if it has several."""
    module: Any = {"a2c": a2c, "ppo": ppo}[algorithm]
    name, calls = f"{algorithm}_loss", []
    loss_of = getattr(module, name)
    first_poisoned = UPDATE * (1 if algorithm == "a2c" else 4) + (algorithm == "ppo")

    def poisoned(*arguments: Any) -> Any:
        calls.append(1)
        loss = loss_of(*arguments)
        return loss._replace(total=loss.total + poison) if len(calls) > first_poisoned else loss

    monkeypatch.setattr(module, name, poisoned)
    settings = A2C() if algorithm == "a2c" else PPO(epochs=2, num_minibatches=2)
    experiment = Experiment("CartPole-v1", algorithm=settings, num_envs=2, sync_interval=8, total_steps=1600)
    quiet = Placement("inline", run_dir=tmp_path / "run", tensorboard=False, progress="off", log_every_steps=1)
    with pytest.raises(TrainingDiverged, match=rf"^in update {UPDATE}, the loss is (nan|inf) .*; the batch is finite"):
        train(Config(experiment, quiet))
    return tmp_path / "run"


def counting(step: Any, steps: list[str]) -> Any:
    def counted(self: Optimizer, learning_rate: float) -> None:
        steps.append(type(self).__name__)
        step(self, learning_rate)

    return counted


@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("algorithm", ["a2c", "ppo"])
def test_the_optimizer_does_not_move_and_the_batch_and_the_state_before_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: Literal["a2c", "ppo"], poison: float
) -> None:
    steps: list[str] = []
    kinds: tuple[Any, ...] = (Adam, RmsProp)
    for kind in kinds:
        monkeypatch.setattr(kind, "step", counting(kind.step, steps))
    run_dir = train_until_it_diverges(tmp_path, monkeypatch, algorithm, poison)
    assert len(steps) == UPDATE * (1 if algorithm == "a2c" else 4) + (algorithm == "ppo"), "not by the poisoned one"
    assert len(read_links(run_dir)) == UPDATE
    batch = load_file(run_dir / "diverged_batch.safetensors")
    assert batch["obs"].shape == (8, 2, 4)
    assert np.isfinite(batch["rewards"]).all()
    found = newest_valid(run_dir / "checkpoints", warn=pytest.fail)
    assert found is not None
    assert found[1].document["version"] == UPDATE
    learned = {name: x for name, x in found[1].arrays.items() if "info/" not in name and "episode_windows" not in name}
    assert all(np.isfinite(array).all() for array in learned.values() if array.dtype.kind == "f")
