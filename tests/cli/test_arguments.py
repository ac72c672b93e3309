"""What a user types: flags in any order, names of other libraries, numbers, pipes that are closed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import PACKAGE_ROOT, run_htsrl

from htsrl import Config, Experiment, Placement, train
from htsrl.cli.arguments import Flags, with_new_names
from htsrl.cli.resume import resume_defaults
from htsrl.cli.train import train_command
from htsrl.config.file import to_json

MODULE = "import gymnasium\n\ndef make(**arguments):\n    return gymnasium.make('CartPole-v1', **arguments)\n"
SMALL = ("--placement", "inline", "--num-envs", "2", "--sync-interval", "4", "--no-tensorboard", "--progress", "off")


@pytest.mark.parametrize(
    "arguments",
    [
        "resume RUN --allow-different-numerics",
        "resume --allow-different-numerics RUN",
        "resume --no-tensorboard --num-actors 2 RUN",
        "resume --num-actors=2 --no-restart-workers RUN --total-steps 9",
    ],
)
def test_flags_of_resume_in_any_order_keep_the_placement_of_the_run(tmp_path: Path, arguments: str) -> None:
    config = Config(Experiment("CartPole-v1"), Placement("inline", num_executors=3))
    (tmp_path / "config.json").write_text(to_json(config))
    words = [str(tmp_path) if word == "RUN" else word for word in arguments.split()]
    defaults = resume_defaults(words)
    assert (defaults.backend, defaults.num_executors) == ("inline", 3)


@pytest.mark.parametrize(
    "arguments",
    [
        "train ALE/Pong-v5 --resume-or-start",
        "train --resume-or-start ALE/Pong-v5",
        "train --no-anneal-learning-rate --import ale_py --env-arg a=1 ALE/Pong-v5 --hidden-sizes 3 4",
    ],
)
def test_words_are_told_from_the_values_of_flags(arguments: str) -> None:
    assert Flags(train_command("ppo")).words(arguments.split()) == ["train", "ALE/Pong-v5"]


def test_a_flag_under_its_old_name_is_the_one_of_today(tmp_path: Path) -> None:
    flags = ("--memory=gru", "--memory_size", "4", "--total-steps", "8", "--run-dir", "run")
    outcome = run_htsrl(tmp_path, "train", "CartPole-v1", *SMALL, *flags)
    assert outcome.exit_code == 0, outcome.stderr
    network = json.loads((tmp_path / "run" / "config.json").read_text())["experiment"]["network"]
    assert (network["recurrent"], network["recurrent_size"]) == ("gru", 4)
    assert "--memory is now called --recurrent;" in outcome.stderr


def test_an_old_name_that_an_algorithm_has_given_a_flag_of_its_own_is_left_to_it() -> None:
    @dataclass
    class Settings:
        memory_size: int = 3

    arguments = ["train", "CartPole-v1", "--memory", "gru", "--memory-size", "8"]
    assert with_new_names(arguments, Flags(Settings)) == [
        *("train", "CartPole-v1", "--recurrent", "gru", "--memory-size", "8")
    ]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--lr 0.1", "--lr is --learning-rate here"),
        ("--gamma=0.9", "--gamma is --discount here"),
        ("--ent_coef 0.1", "--ent-coef is --entropy-coefficient here"),
        ("--n-steps 5", "--n-steps is --sync-interval here"),
        ("--batch-size 64", "--batch-size is --num-minibatches, which says how many there are"),
        ("--algo dqn --batch-size 64", "--batch-size is --minibatch-size here"),
        ("--algo dqn --buffer-size 1e5", "--buffer-size is --replay-capacity here"),
        ("--algo sac --tau 0.1", "--tau is --follow-rate here"),
        ("--eval-freq 100", "--eval-freq is --eval-every here"),
        ("--algo a2c --epochs 4", "--epochs is a setting of ppo, and the algorithm is a2c; use --algo ppo"),
    ],
)
def test_a_name_from_elsewhere_is_answered_with_the_one_here(tmp_path: Path, flags: str, expected: str) -> None:
    outcome = run_htsrl(tmp_path, "train", "CartPole-v1", *flags.split())
    assert (outcome.exit_code, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith(f"error: {expected}")


def test_a_function_of_a_module_trains_and_whole_numbers_may_have_an_exponent(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    arguments = ("--total-steps", "1e1", "--run-dir", "run", *SMALL)
    outcome = run_htsrl(tmp_path, "train", "mine:make", *arguments)
    assert outcome.exit_code == 0, outcome.stderr
    assert "steps     16 in" in outcome.stdout
    again = run_htsrl(tmp_path, "train", "mine:make", *arguments, "--resume-or-start")
    assert again.exit_code == 0, again.stderr
    assert again.stdout == outcome.stdout


def test_eval_takes_a_function_and_arguments_for_it_as_train_does(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    config = Config(Experiment("CartPole-v1", num_envs=2, sync_interval=4, total_steps=8), Placement("inline"))
    train(config, run_dir=tmp_path / "run", tensorboard=False, progress="off")
    arguments = ("--episodes", "1", "--env-arg", "max_episode_steps=3", "--sampled")
    outcome = run_htsrl(tmp_path, "eval", "run", "--env", "mine:make", *arguments)
    assert "score    3.00 +- 0.00 over 1 episodes" in outcome.stdout, outcome.stderr
    assert f"policy   version 1, {tmp_path / 'run' / 'policy.safetensors'}" in outcome.stdout


def test_a_number_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    outcome = run_htsrl(tmp_path, "train", "CartPole-v1", "--num-envs", "1.5")
    assert outcome.exit_code == 2
    assert "1.5" in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_a_reader_that_has_gone_away_costs_no_training(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    flags = ("--preset", "mujoco", "--total-steps", "64", "--progress", "plain", "--run-dir", "run", *SMALL[:-2])
    command = [sys.executable, "-m", "htsrl", "train", "Pendulum-v1", *flags]
    process = subprocess.run(command, stdout=write_end, stderr=write_end, cwd=tmp_path, timeout=60)
    os.close(write_end)
    assert process.returncode == 141
    assert json.loads((tmp_path / "run" / "result.json").read_text())["interrupted"] is False


@pytest.mark.parametrize("arguments", ["--version", "train --help", "export RUN --format torch"])
def test_a_reader_that_has_gone_away_ends_a_command_quietly(tmp_path: Path, arguments: str) -> None:
    if "RUN" in arguments:
        config = Config(Experiment("CartPole-v1", num_envs=2, sync_interval=4, total_steps=8), Placement("inline"))
        train(config, run_dir=tmp_path / "run", tensorboard=False, progress="off")
        arguments = arguments.replace("RUN", str(tmp_path / "run"))
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "htsrl", *arguments.split()]
    process = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(write_end)
    assert process.returncode == 141
    assert all(line.endswith(" ...") for line in process.stderr.splitlines()), process.stderr


INTERRUPT_AT_IMPORT = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "gymnasium":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from htsrl_command import main
main()
"""


def test_ctrl_c_while_htsrl_is_imported_ends_the_command_with_one_line() -> None:
    process = subprocess.run([sys.executable, "-c", INTERRUPT_AT_IMPORT], capture_output=True, text=True, timeout=60)
    assert (process.returncode, process.stderr) == (130, "\ninterrupted before anything was begun\n")


def test_the_installed_command_is_the_one_that_understands_it() -> None:
    project = tomllib.loads((PACKAGE_ROOT / "pyproject.toml").read_text())
    assert project["project"]["scripts"] == {"htsrl": "htsrl_command:main"}


def test_help_does_not_wait_for_torch(tmp_path: Path) -> None:
    program = (
        "import sys; from htsrl.cli.main import main\ntry: main(['--help'])\nfinally: assert 'torch' not in sys.modules"
    )
    process = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stderr
