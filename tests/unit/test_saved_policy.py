"""Which policy of a run is played: the newest whole one, whatever became of the run, or the one asked for."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import htsrl
from htsrl import A2C, Config, Experiment, Network, Placement, RunFolderError, evaluate, load_policy
from htsrl.checkpoint.files import Checkpoint, commit_checkpoint, prepare_checkpoint, read_checkpoint
from htsrl.checkpoint.manifest import MANIFEST_FILE
from htsrl.runs.folder import RunFolder
from htsrl.runs.saved_policy import saved_policy

NUM_UPDATES = 6


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All versions from 1 to 6 are in checkpoints."""
    experiment = Experiment(
        "CartPole-v1",
        env_args={"max_episode_steps": 20},
        algorithm=A2C(normalize_rewards=True, learning_rate=0.05),
        network=Network(hidden_sizes=(8,), normalize_observations=True),
        num_envs=3,
        total_steps=3 * 10 * NUM_UPDATES,
        sync_interval=10,
    )
    placement = Placement(
        "inline",
        run_dir=tmp_path_factory.mktemp("saved") / "run",
        tensorboard=False,
        progress="off",
        checkpoint_every_updates=1,
        keep_checkpoints=10,
    )
    return htsrl.train(Config(experiment, placement)).run_dir


@pytest.fixture
def run_dir(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def checkpoint(run_dir: Path, version: int) -> Path:
    return run_dir / "checkpoints" / f"{version:09d}"


def state(run_dir: Path, **choice: Any) -> dict[str, torch.Tensor]:
    return dict(load_policy(run_dir, **choice).policy.state_dict())


def test_a_policy_is_the_same_from_its_file_and_from_a_checkpoint(run_dir: Path) -> None:
    from_file = state(run_dir)
    (run_dir / "policy.safetensors").unlink()
    from_checkpoint = state(run_dir)
    assert from_file.keys() == from_checkpoint.keys()
    assert any("reward_scale" in name for name in from_file)
    assert any("observation_scales" in name for name in from_file)
    assert all(torch.equal(tensor, from_checkpoint[name]) for name, tensor in from_file.items())


def test_a_checkpoint_that_is_newer_than_the_last_policy_is_played(run_dir: Path) -> None:
    """As after a resume that was killed."""
    old = load_policy(run_dir, 2)
    RunFolder(run_dir).save_policy(old.policy, version=2)
    evaluation = evaluate(run_dir, episodes=1)
    assert (evaluation.version, evaluation.source) == (NUM_UPDATES, checkpoint(run_dir, NUM_UPDATES))
    shutil.rmtree(run_dir / "checkpoints")
    assert (load_policy(run_dir).version, load_policy(run_dir).source) == (2, run_dir / "policy.safetensors")


def test_a_run_that_has_not_ended_has_a_policy(run_dir: Path) -> None:
    for name in ("policy.safetensors", "result.json"):
        (run_dir / name).unlink()
    assert evaluate(run_dir, episodes=1).version == NUM_UPDATES


def test_a_damaged_checkpoint_is_passed_over_aloud(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run_dir / "policy.safetensors").write_bytes(b"noise")
    (checkpoint(run_dir, NUM_UPDATES) / MANIFEST_FILE).write_bytes(b"{}")
    assert load_policy(run_dir).version == NUM_UPDATES - 1
    err = capsys.readouterr().err
    assert "passed over a damaged policy" in err
    assert "passed over a damaged checkpoint" in err


def test_any_version_that_is_there_can_be_had_and_others_are_named(run_dir: Path) -> None:
    shutil.rmtree(checkpoint(run_dir, 4))
    assert load_policy(run_dir, 3).version == 3
    with pytest.raises(RunFolderError, match=r"holds no version 4; there are .*2, 3, 5, 6"):
        load_policy(run_dir, 4)


def test_the_best_is_the_checkpoint_with_the_best_return(run_dir: Path) -> None:
    for version, mean_return in ((3, 20.0), (5, 20.0), (6, 7.0)):
        found = read_checkpoint(checkpoint(run_dir, version))
        changed = Checkpoint({**found.document, "mean_return": mean_return}, found.arrays)
        commit_checkpoint(prepare_checkpoint(run_dir / "checkpoints", changed))
    assert load_policy(run_dir, "best").version == 5
    assert not torch.equal(*(state(run_dir, checkpoint=c)["action_head.weight"] for c in ("best", "newest")))


def test_without_returns_there_is_no_best(run_dir: Path) -> None:
    shutil.rmtree(run_dir / "checkpoints")
    with pytest.raises(RunFolderError, match="knows a return"):
        load_policy(run_dir, "best")


def test_where_checkpoints_vanish_while_they_are_read_the_folder_is_looked_at_again(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run under way writes a new one and removes old ones."""
    (run_dir / "policy.safetensors").unlink()
    coming = checkpoint(run_dir, NUM_UPDATES).rename(tmp_path / "coming")
    asked: list[str] = []

    def read(path: Path, with_rollouts: bool) -> Checkpoint:
        asked.append(path.name)
        if len(asked) == 1:
            shutil.rmtree(run_dir / "checkpoints")
            (run_dir / "checkpoints").mkdir()
            coming.rename(checkpoint(run_dir, NUM_UPDATES))
        return read_checkpoint(path)

    monkeypatch.setattr("htsrl.runs.saved_policy.read_checkpoint", read)
    assert saved_policy(RunFolder(run_dir)).version == NUM_UPDATES
    assert asked == [f"{NUM_UPDATES - 1:09d}", f"{NUM_UPDATES:09d}"]


def test_a_configuration_that_asks_for_another_network_is_refused_before_it_is_built(run_dir: Path) -> None:
    text = (run_dir / "config.json").read_text()
    huge = text.replace('"hidden_sizes": [\n        8\n', f'"hidden_sizes": [\n        {2**40}\n')
    assert huge != text
    (run_dir / "config.json").write_text(huge)
    with pytest.raises(RunFolderError, match="does not fit this run"):
        load_policy(run_dir)
    (run_dir / "policy.safetensors").unlink()
    with pytest.raises(RunFolderError, match="does not fit this run"):
        load_policy(run_dir)


def test_the_numbers_of_a_checkpoint_are_those_that_acted(run_dir: Path) -> None:
    """The flat vector has padding between layers; a row that is off by it would still have the right length."""
    found = read_checkpoint(checkpoint(run_dir, 6)).arrays["version 6/parameter_slots"][0]
    weights = state(run_dir, checkpoint=6)["encoder.mlp.layers.0.weight"].numpy()
    assert np.array_equal(found[: weights.size], weights.ravel())
