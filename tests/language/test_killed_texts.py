"""Kills of runs on text, between any two lines and of the supervisor: no bit changes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from interleavings import assert_kills_change_nothing, blueprint_of
from tiny_models import make_files

import htsrl
from htsrl import Config, Placement
from htsrl.digest import read_links
from htsrl.language.rlhf import rlhf_config
from htsrl.train import train

UPDATES, BATCH = 4, 16
REWARD = {"reward_funcs": "text_rewards:vowels"}
CARRIED = {
    "environment": "text_environments:Dialogue",
    "max_turns": 4,
    "max_turn_length": 3,
    "turns_per_rollout": 1,
}
QUIET: dict[str, Any] = {"tensorboard": False, "progress": "off", "timeline": False, "log_every_steps": BATCH}
SETTINGS: dict[str, Any] = {
    "generation_batch_size": BATCH,
    "max_completion_length": 8,
    "learning_rate": 1e-2,
    "seed": 5,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return make_files(tmp_path_factory.mktemp("files"))


@pytest.mark.parametrize(
    "own", [pytest.param(REWARD, id="completions"), pytest.param(CARRIED, id="episodes", marks=pytest.mark.slow)]
)
def test_whoever_is_killed_between_any_two_lines_no_bit_changes(
    own: dict[str, Any], files: dict[str, Any], tmp_path: Path
) -> None:
    config = rlhf_config(**files, **own, **SETTINGS, steps_per_generation=2, total_episodes=UPDATES * BATCH)
    train(Config(config.experiment, Placement("inline", run_dir=tmp_path / "run", **QUIET)))
    wanted = {"learner": 1, "generator 0": 1, "generator 1": 1}
    assert_kills_change_nothing(blueprint_of(config.experiment), read_links(tmp_path / "run"), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("own", [REWARD, CARRIED], ids=["completions", "episodes"])
def test_a_supervisor_that_is_killed_is_resumed_to_the_same_bits(
    own: dict[str, Any], files: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it was: checkpoints are written before every update."""
    config = rlhf_config(**files, **own, **SETTINGS, total_episodes=60 * BATCH)
    whole = train(Config(config.experiment, Placement("inline", run_dir=tmp_path / "whole", **QUIET)))
    run_dir, metrics = tmp_path / "killed", tmp_path / "killed" / "metrics.jsonl"
    flags = {"model": files["model"], "prompts": files["prompts"], **own, **SETTINGS, "total-episodes": 60 * BATCH}
    flags = {"reward" if name == "reward_funcs" else name: value for name, value in flags.items()}
    command = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
    command += ["--num-generators=2", "--checkpoint-every-updates=1", "--no-tensorboard", f"--run-dir={run_dir}"]
    monkeypatch.setenv("PYTHONPATH", f"{Path(htsrl.__file__).parents[1]}:{Path(__file__).parent}")
    process = subprocess.Popen([sys.executable, "-m", "htsrl", "rlhf", *command], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 300
        while not (metrics.exists() and metrics.read_text().count("\n") > 5):
            assert process.poll() is None, "the run ended by itself"
            assert time.monotonic() < deadline, "it does not learn"
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert len(read_links(run_dir)) < 60, "it was killed in the middle"
    resumed = htsrl.resume(run_dir, placement=Placement("inline", **QUIET))
    assert (resumed.digest, resumed.updates) == (whole.digest, 60)
    assert read_links(run_dir) == read_links(tmp_path / "whole")
