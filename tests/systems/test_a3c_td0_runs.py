"""A3C-TD(0) ends with the same bits on any placement, through kills and from a checkpoint, by no line of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from helpers import Outcome, assert_same_run, run

from htsrl import Config, Experiment, Placement, resume, train
from htsrl.processes.kill_points import KILL_AT, KILL_ONCE
from htsrl.systems.a3c_td0.algorithm import A3CTD0

# The limit cuts some episodes and lets others fall over; the process restarts by chance.
CARTPOLE = Experiment(
    "CartPole-v1",
    {"max_episode_steps": 12},
    algorithm=A3CTD0.Settings(actor_step_size=0.5, critic_step_size=0.5, critic_radius=8.0),
    num_envs=3,
    total_steps=120,
)
MDP = replace(CARTPOLE, env="htsrl/RandomMdp-v0", env_args={}, imports=("htsrl.systems.a3c_td0",), lag=2)
EXPERIMENTS = {"cartpole": CARTPOLE, "mdp": MDP, "chain": replace(MDP, env_args={"sampling": "chain"})}


@cache
def oracle(name: str) -> Outcome:
    """All in this process, undisturbed."""
    return run(EXPERIMENTS[name], log_every_steps=1)


def quiet(**settings: Any) -> Placement:
    return Placement(tensorboard=False, progress="off", log_every_steps=1, **settings)


@pytest.mark.parametrize(("name", "num_executors"), [("cartpole", 1), ("mdp", 3)])
def test_processes_end_with_the_bits_of_one(name: str, num_executors: int) -> None:
    outcome = run(EXPERIMENTS[name], backend="processes", num_executors=num_executors, log_every_steps=1)
    assert_same_run(outcome, oracle(name))


def test_a_killed_executor_and_a_killed_learner_change_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The learner dies between two workers' updates of one interval."""
    monkeypatch.setenv(KILL_AT, "before a step:31, optimizer step:50")
    monkeypatch.setenv(KILL_ONCE, str(tmp_path / "killed"))
    result = train(Config(CARTPOLE, quiet(run_dir=tmp_path / "run", num_executors=1)))
    assert {path.name for path in (tmp_path / "killed").iterdir()} == {"before a step", "optimizer step"}
    assert result.restarts == 2
    assert_same_run(Outcome.read(tmp_path / "run"), oracle("cartpole"))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_run_resumed_from_its_middle_goes_on_with_the_steps_it_would_have_made(tmp_path: Path, name: str) -> None:
    """How far step sizes have fallen is a function of the interval's number."""
    experiment = EXPERIMENTS[name]
    train(Config(replace(experiment, total_steps=51), quiet(backend="inline", run_dir=tmp_path / "run")))
    resume(tmp_path / "run", total_steps=experiment.total_steps, placement=quiet(backend="inline"))
    assert_same_run(Outcome.read(tmp_path / "run"), oracle(name))


def test_the_command_line_has_its_flags_and_its_file_is_the_same_experiment(tmp_path: Path) -> None:
    target = "htsrl.systems.a3c_td0.algorithm:A3CTD0"
    flags = ("--actor-step-size", "0.5", "--critic-step-size", "0.5", "--critic-radius", "8", "--num-envs", "3")
    cut = ("--env-arg", "max_episode_steps=12", "--total-steps", "120", "--placement", "inline", "--no-tensorboard")
    first = htsrl_train(tmp_path, "first", "CartPole-v1", "--algo", target, *flags, *cut)
    assert first == oracle("cartpole").digest
    assert htsrl_train(tmp_path, "again", "--config", "first/config.json") == first


def htsrl_train(folder: Path, name: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "htsrl", "train", *arguments, "--run-dir", name]
    completed = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert completed.returncode == 0, completed.stderr
    return str(json.loads((folder / name / "result.json").read_text())["digest"])
