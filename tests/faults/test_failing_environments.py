"""An exception in an environment reaches the user whole: which environment, which step, the traceback."""

from __future__ import annotations

import re
import traceback
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fault_envs import Fault, Faulty
from helpers import workers_left
from live_run import LiveRun, survivors

from htsrl import A2C, Config, EnvironmentFailure, Experiment, Placement, train
from htsrl.seeding import reset_seed

SYNC_INTERVAL, NUM_ENVS, SEED, ODD_ENV = 4, 3, 1, 2
EPISODE_STEPS = 6
PLACEMENTS = {
    "inline": Placement("inline", num_executors=1),
    "together": Placement(num_executors=1, num_actors=0),
    "separate": Placement(num_executors=1, num_actors=1),
}
# In its second episode: the fifth step, which is its step 6 + 4 of all; or the reset that follows step 5.
FAULTS: dict[str, dict[str, Any]] = {
    "step": {"where": "step", "fault_step": 4},
    "reset": {"where": "reset"},
}
SECOND_RESET_SEED = reset_seed(SEED, ODD_ENV, episode=1)
EXPECTED = {
    "step": r"environment 2 raised ValueError in step\([01]\) at its step 10 \(episode 1, seed {seed}\)",
    "reset": r"environment 2 raised ValueError in reset\({seed}\) at its step 6 \(episode 1, seed {seed}\)",
}


def assert_tells_all(text: str, where: str) -> None:
    assert re.match(EXPECTED[where].format(seed=SECOND_RESET_SEED) + ": the robot fell over\n", text), text
    assert text.count("Traceback (most recent call last):") == 1
    assert re.search(r'fault_envs.py", line \d+, in _go_wrong', text)
    assert text.rstrip().endswith("ValueError: the robot fell over")


def train_with(tmp_path: Path, fault: Fault, placement: str, where: str) -> None:
    experiment = Experiment(
        env=partial(Faulty, fault, fault_seed=SECOND_RESET_SEED, episode_steps=EPISODE_STEPS, **FAULTS[where]),
        algorithm=A2C(),
        num_envs=NUM_ENVS,
        sync_interval=SYNC_INTERVAL,
        total_steps=1000,
        seed=SEED,
    )
    quiet = replace(PLACEMENTS[placement], run_dir=tmp_path / "run", tensorboard=False, progress="off")
    train(Config(experiment, quiet))


def test_what_python_prints_has_the_environments_traceback_once(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure) as caught:
        train_with(tmp_path, "raise", "inline", "step")
    assert "".join(traceback.format_exception(caught.value)).count("in _go_wrong") == 1


# From Python or from the command line, each placement and place once.
FROM_PYTHON = [("inline", "step"), ("together", "step"), ("together", "reset"), ("separate", "reset")]
FROM_COMMAND_LINE = [("inline", "reset"), ("separate", "step")]


@pytest.mark.parametrize(("placement", "where"), FROM_PYTHON)
def test_an_exception_is_raised_with_environment_step_and_traceback(tmp_path: Path, placement: str, where: str) -> None:
    with pytest.raises(EnvironmentFailure) as failure:
        train_with(tmp_path, "raise", placement, where)
    assert_tells_all(str(failure.value), where)
    assert workers_left() == []
    assert (tmp_path / "run" / "policy.safetensors").exists(), "what was learned so far is kept"


def test_an_environment_that_calls_sys_exit_does_not_end_the_program_without_a_word(tmp_path: Path) -> None:
    with pytest.raises(
        EnvironmentFailure, match=r"environment 2 raised SystemExit in step.*the simulator wants no more"
    ):
        train_with(tmp_path, "sys.exit", "inline", "step")


@pytest.mark.parametrize(("placement", "where"), FROM_COMMAND_LINE)
def test_an_exception_ends_the_command_with_its_traceback_and_exit_code_1(
    tmp_path: Path, placement: str, where: str
) -> None:
    arguments = {"fault": "raise", "fault_seed": SECOND_RESET_SEED, "episode_steps": EPISODE_STEPS, **FAULTS[where]}
    who = PLACEMENTS[placement]
    run = LiveRun(
        tmp_path,
        *("Faulty-v0", "--import", "fault_envs", *(f"--env-arg={name}={value}" for name, value in arguments.items())),
        *("--sync-interval", str(SYNC_INTERVAL), "--num-envs", str(NUM_ENVS), "--seed", str(SEED)),
        *("--placement", who.backend, "--num-executors", "1", "--num-actors", str(who.resolved_actors())),
    )
    try:
        if who.backend == "processes":
            run.wait_until(lambda: len(run.find_workers()) == 2 + who.resolved_actors())
            run.workers = run.find_workers()
        run.wait_for_end(60.0)
        left_behind = survivors(run.workers, seconds=0.0)
    finally:
        run.clean_up()
    assert run.exit_code == 1
    before, said, error = run.stderr.partition("error: ")
    assert said
    assert ("is started again\n" in before) == (who.backend == "processes")
    assert re.search(r"is in run/failed_environment_2.json; .*`htsrl resume run` continues after update \d+\n$", before)
    if who.backend == "processes":  # what was said when it was brought back is not said again
        assert re.match(EXPECTED[where].format(seed=SECOND_RESET_SEED), error), error
        assert error.endswith("the robot fell over (again; the traceback is above)\n")
        assert run.stderr.count("Traceback (most recent call last):") == 1
    else:
        assert_tells_all(error, where)
    assert left_behind == []
