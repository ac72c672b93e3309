"""Sweeps as a user has them, killed and resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import htsrl
from htsrl.sweeps.results import RESULT_FILE
from htsrl.sweeps.sweep import JOURNAL_FILE

SMALL = """
[sweep]
trials = 2
sampler = "grid"
[train]
env = "CartPole-v1"
num_envs = 2
sync_interval = 32
total_steps = 512
epochs = 1
tensorboard = false
log_every_steps = 64
[space]
learning_rate = [1e-3, 1e-4]
"""
TWENTY = """
[sweep]
trials = 20
startup_trials = 5
[pruning]
at = [4096]
[train]
env = "CartPole-v1"
num_envs = 8
sync_interval = 64
total_steps = 8192
epochs = 2
tensorboard = false
log_every_steps = 512
checkpoint_every_updates = 2
[space]
learning_rate = { low = 1e-5, high = 1e-2, log = true }
num_minibatches = [2, 4, 8]
activation = ["tanh", "relu"]
"""


def killed_once(path: Path, folder: Path, is_time: Callable[[], bool]) -> None:
    """`htsrl sweep` as a user has it, until SIGKILL at a moment of the test's choice."""
    command = [sys.executable, "-m", "htsrl", "sweep", str(path), "--run-dir", str(folder), "--parallel", "2"]
    with (path.parent / "log").open("a") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=Path(htsrl.__file__).parents[1])
        while process.poll() is None and not is_time():
            time.sleep(0.01)
        assert process.poll() is None, (path.parent / "log").read_text()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()


def test_a_real_sweep_killed_and_resumed_has_the_digests_of_runs_by_themselves(tmp_path: Path) -> None:
    path, folder = tmp_path / "spec.toml", tmp_path / "sweep"
    path.write_text(SMALL)
    metrics = folder / "trial-000" / "seed-1" / "metrics.jsonl"
    killed_once(path, folder, lambda: metrics.exists() and metrics.stat().st_size > 0)
    result = htsrl.sweep(path, folder, parallel=2)
    assert [trial.state for trial in result.trials] == ["complete", "complete"]
    alone = htsrl.train(
        "CartPole-v1",
        num_envs=2,
        sync_interval=32,
        total_steps=512,
        algorithm=htsrl.PPO(epochs=1, learning_rate=1e-4),
        backend="inline",
        tensorboard=False,
        progress="off",
        run_dir=tmp_path / "alone",
    )
    assert result.trials[1].runs[0].digest == alone.digest
    assert "--learning-rate" in str(result.command)


@pytest.mark.slow
def test_twenty_trials_killed_twice_and_resumed_are_the_same_trials(tmp_path: Path) -> None:
    path, journal = tmp_path / "spec.toml", tmp_path / "killed" / JOURNAL_FILE
    path.write_text(TWENTY)
    htsrl.sweep(path, tmp_path / "whole", parallel=2)
    for num_ended in (6, 13):
        killed_once(
            path,
            tmp_path / "killed",
            lambda least=num_ended: journal.exists() and journal.read_bytes().count(b"\n") >= least,  # type: ignore[misc]
        )
    htsrl.sweep(path, tmp_path / "killed", parallel=3)
    one, other = (json.loads((tmp_path / name / RESULT_FILE).read_text()) for name in ("killed", "whole"))
    assert one == other
