"""Whatever cannot work is refused in one sentence, before a process or a folder is made."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import Outcome, run_htsrl

ENVIRONMENTS = """
import gymnasium
import numpy as np
from gymnasium import spaces

class Wrong(gymnasium.Env):
    def __init__(self, fault):
        text_space = spaces.Text(5)
        image_space = spaces.Box(0, 255, (20, 24, 3), np.uint8)
        vector_space = spaces.Box(-1, 1, (2,), np.float32)
        self.observation_space = {"text": text_space, "image": image_space}.get(fault, vector_space)
        self.action_space = spaces.MultiBinary(3) if fault == "buttons" else spaces.Discrete(2)
        self.observation_space.seed(0)
        self.fault = fault

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        observation = self.observation_space.sample()
        if self.fault == "range":
            observation = observation + np.float32(7)
        if self.fault == "old api":
            return observation, 0.0, False, {}
        return observation, 0.0, False, False, {}

gymnasium.register(id="Wrong-v0", entry_point=Wrong)
"""
WRONG = ("train", "Wrong-v0", "--import", "wrong_envs")


def refusal(outcome: Outcome) -> str:
    """The one line that was said, by a command that did nothing else."""
    assert outcome.exit_code == 2, outcome.stderr
    assert outcome.stdout == ""
    assert outcome.started_processes == ""
    assert re.fullmatch(r"error: [^\n]+\n", outcome.stderr), outcome.stderr
    return outcome.stderr.removeprefix("error: ").strip()


def refuse(folder: Path, *arguments: str) -> str:
    before = sorted(folder.rglob("*"))
    if arguments[0] == "train":  # should it not be refused, it need not train for long
        arguments = (*arguments, "--total-steps", "1")
    message = refusal(run_htsrl(folder, *arguments))
    assert sorted(folder.rglob("*")) == before, "a refused command left something behind"
    return message


def config_file(folder: Path, **experiment: Any) -> str:
    document = {"experiment": {"env": "CartPole-v1", **experiment}}
    (folder / "config.json").write_text(json.dumps(document))
    return "config.json"


def test_an_unknown_environment_is_answered_with_the_nearest_ones(tmp_path: Path) -> None:
    message = refuse(tmp_path, "train", "CartPoel-v1")
    assert "'CartPoel-v1'" in message
    assert "did you mean CartPole-v1" in message


def test_an_environment_of_the_old_api_is_refused(tmp_path: Path) -> None:
    (tmp_path / "wrong_envs.py").write_text(ENVIRONMENTS)
    message = refuse(tmp_path, *WRONG, "--env-arg", 'fault="old api"')
    assert "old Gym's API" in message
    assert "shimmy" in message


def test_an_observation_space_that_is_not_supported_is_named(tmp_path: Path) -> None:
    (tmp_path / "wrong_envs.py").write_text(ENVIRONMENTS)
    message = refuse(tmp_path, *WRONG, "--env-arg", "fault=text")
    assert "observation space Text(" in message
    assert "wrap the environment" in message


def test_images_too_small_for_the_cnn_are_refused_with_the_flag_that_helps(tmp_path: Path) -> None:
    (tmp_path / "wrong_envs.py").write_text(ENVIRONMENTS)
    message = refuse(tmp_path, *WRONG, "--env-arg", "fault=image", "--encoder", "nature_cnn")
    assert "20x24" in message
    assert "36x36" in message
    assert "--encoder mlp" in message


def test_an_argument_that_the_environment_does_not_take_is_answered_with_those_it_does(tmp_path: Path) -> None:
    message = refuse(tmp_path, "train", "CartPole-v1", "--env-arg", "gravity=9.81")
    assert "CartPole-v1 does not take env_args={'gravity': 9.81}" in message
    assert "it takes sutton_barto_reward=False" in message


def test_a_device_that_is_not_there_is_answered_with_those_that_are(tmp_path: Path) -> None:
    message = refuse(tmp_path, "train", "CartPole-v1", "--device", "cuda:97")
    assert "device=cuda:97 cannot be used" in message
    assert "use one of cpu" in message


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--num-envs 4 --sync-interval 32 --num-minibatches 5", "num_minibatches=5; use 4 or 8"),
        ("--sync-interval 10 --unroll-length 4", "sync_interval=10 is not a multiple of unroll_length=4; use 8 or 12"),
        ("--num-envs 2 --num-executors 3", "num_executors=3 is more than num_envs=2; use 2 or fewer"),
        ("--sync-interval 0", "sync_interval=0 must be at least 1"),
        ("--env-arg gravity", "--env-arg gravity must be KEY=VALUE"),
        ("--config nowhere.json", "cannot read the configuration nowhere.json: No such file or directory"),
    ],
)
def test_a_value_that_cannot_work_is_named_with_the_rule(tmp_path: Path, flags: str, expected: str) -> None:
    assert expected in refuse(tmp_path, "train", "CartPole-v1", *flags.split())


@pytest.mark.parametrize("flags", ["--algo alphazero", "--num-envs many", "--num-env 4", "--config"])
def test_a_flag_that_cannot_be_parsed_is_named_on_stderr(tmp_path: Path, flags: str) -> None:
    outcome = run_htsrl(tmp_path, "train", "CartPole-v1", *flags.split())
    assert (outcome.exit_code, outcome.stdout, outcome.started_processes) == (2, "", "")
    assert flags.split()[0] in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert "__main__.py" not in outcome.stderr, "the user knows the program as htsrl"
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_key_in_a_config_file_is_answered_with_the_nearest(tmp_path: Path) -> None:
    message = refuse(tmp_path, "train", "--config", config_file(tmp_path, num_env=4))
    assert "unknown key 'num_env' in experiment; did you mean 'num_envs'?" in message


def test_an_unknown_hyperparameter_in_a_config_file_is_answered_with_the_nearest(tmp_path: Path) -> None:
    file = config_file(tmp_path, algorithm={"name": "a2c", "learning_rte": 0.1})
    message = refuse(tmp_path, "train", "--config", file)
    assert "unknown key 'learning_rte' in experiment.algorithm; did you mean 'learning_rate'?" in message


def test_a_value_of_the_wrong_type_in_a_config_file_is_named_with_the_right_one(tmp_path: Path) -> None:
    message = refuse(tmp_path, "train", "--config", config_file(tmp_path, num_envs="four"))
    assert "experiment.num_envs='four' must be a whole number" in message


@pytest.mark.parametrize("content", [b"{", b"\xf0\x28\x8c\x28", b"[1, 2]", b""])
def test_a_config_file_that_is_none_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "broken.json").write_bytes(content)
    assert "broken.json" in refuse(tmp_path, "train", "--config", "broken.json")


def test_a_run_folder_that_exists_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("three years of work")
    message = refuse(tmp_path, "train", "CartPole-v1", "--run-dir", "mine")
    assert "run_dir=mine exists already; choose another" in message


@pytest.mark.parametrize("command", ["eval", "digest"])
def test_a_folder_that_holds_no_run_is_named(tmp_path: Path, command: str) -> None:
    outcome = run_htsrl(tmp_path, command, "nowhere")
    assert outcome.exit_code in (1, 2)
    assert re.fullmatch(r"error: nowhere [^\n]+\n", outcome.stderr)
