"""A library's warning is shown once per run, whichever of its processes comes to it."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from typing import Any

import gymnasium
import pytest
from helpers import run

from htsrl import A2C, Experiment
from htsrl.processes.warnings_once import FOLDER, warnings_once

CHILD = (
    "from htsrl.processes.warnings_once import show_warnings_once; show_warnings_once(); import warnings; "
    "warnings.warn('the old way'); warnings.warn(f'number {1}')"
)


def shown_by_children(count: int) -> str:
    children = [
        subprocess.Popen([sys.executable, "-c", CHILD], stderr=subprocess.PIPE, text=True) for _ in range(count)
    ]
    return "".join(child.communicate()[1] for child in children)


def test_processes_of_a_run_share_what_was_shown() -> None:
    with pytest.warns(UserWarning, match="the old way"), warnings_once():  # noqa: PT031  (the run is inside)
        warnings.warn("the old way", stacklevel=1)
        said = shown_by_children(2)
    assert said.count("the old way") == 0, "this process has shown it"
    assert said.count("UserWarning: number 1") == 1
    assert FOLDER not in os.environ


def test_without_a_run_every_process_warns() -> None:
    assert shown_by_children(1).count("the old way") == 1


class Complaining(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Warns in whatever process it is made."""

    def __init__(self) -> None:
        warnings.warn("this simulator is old", UserWarning, stacklevel=1)
        super().__init__(gymnasium.make("CartPole-v1"))


def test_workers_do_not_repeat_what_an_environment_warns_of(capfd: pytest.CaptureFixture[str]) -> None:
    experiment = Experiment(Complaining, algorithm=A2C(), num_envs=2, total_steps=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in this process; workers have filters of their own
        run(experiment, backend="processes", num_executors=2)
    assert capfd.readouterr().err.count("UserWarning: this simulator is old") == 1
