"""Whatever somebody else's run folder holds, it is read or refused by name; nothing of it is executed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from run_folder_damage import CANARY

from htsrl import A2C, DQN, Config, Experiment, Network, Placement, train
from htsrl.errors import RunFolderError
from htsrl.runs.folder import RunFolder

HERE = Path(__file__).parent


@pytest.fixture(scope="module", params=["asynchronous", "off-policy"])
def good(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with every kind of file: asynchronous, normalised, with three versions, resumed under other numerics; or
    with several models, a prioritised replay buffer in segments, and evaluations."""
    folder = tmp_path_factory.mktemp("folders")
    (folder / f"{CANARY}.py").write_text("raise SystemExit('the canary was imported')")
    common: dict[str, Any] = {"num_envs": 2, "sync_interval": 16, "total_steps": 96}
    a2c = Experiment(
        "CartPole-v1",
        algorithm=A2C(),
        network=Network(hidden_sizes=(8,), normalize_observations=True),
        schedule="async",
        **common,
    )
    dqn = Experiment(
        "CartPole-v1",
        algorithm=DQN(minibatch_size=4, learning_starts=8, replay_capacity=64, priority_exponent=0.6),
        network=Network(hidden_sizes=(8,)),
        **common,
    )
    placement = Placement(
        "inline",
        run_dir=folder / "run",
        tensorboard=False,
        progress="off",
        checkpoint_every_updates=1,
        keep_checkpoints=2,
    )
    train(Config(a2c if request.param == "asynchronous" else dqn, placement))
    run = RunFolder(folder / "run")
    run.note_change_of_numerics(2, ["machine: a / b"], run.fingerprint())
    lines = [{"version": v, "step": 32 * v, "eval/mean_reward": 9.0 + v} for v in (1, 2, 3)]
    run.evaluations_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "run"


def read_damaged(good: Path, first: int, count: int, seed: int, another_user: Path) -> str:
    """What was raised without a name; the folders are read by a user who did not make them."""
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    process = subprocess.run(
        [sys.executable, str(HERE / "read_damaged_folders.py"), str(good), str(first), str(count), str(seed)],
        env={**os.environ, "PYTHONPATH": path, "XDG_STATE_HOME": str(another_user)},
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.mark.parametrize(
    "change", [7, {}, {"version": "2"}, {"version": 2, "changes": 7}, {"version": 2, "changes": [7]}], ids=str
)
def test_what_is_no_change_of_numerics_is_refused_by_name(tmp_path: Path, change: object) -> None:
    (tmp_path / "numerics_changes.json").write_text(json.dumps([change]))
    with pytest.raises(RunFolderError, match="is not a list of changes"):
        RunFolder(tmp_path).numerics_changes()


def test_five_hundred_damaged_folders_are_read_or_refused_by_name(good: Path, tmp_path: Path) -> None:
    assert read_damaged(good, 0, 500, seed=0, another_user=tmp_path) == ""


@pytest.mark.slow
def test_ten_thousand_damaged_folders_are_read_or_refused_by_name(good: Path, tmp_path: Path) -> None:
    assert read_damaged(good, 0, 10_000, seed=time.time_ns(), another_user=tmp_path) == ""
