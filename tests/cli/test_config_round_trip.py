"""The config.json of a run, fed back, is the same experiment; flags and another algorithm go before it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import Outcome, run_htsrl, run_python

FLAGS = (
    *("--num-envs", "3", "--sync-interval", "8", "--total-steps", "72", "--seed", "5", "--num-minibatches", "2"),
    *("--epochs", "2", "--learning-rate", "0.01", "--hidden-sizes", "16", "--env-arg", "sutton_barto_reward=true"),
    *("--placement", "inline", "--no-tensorboard"),
)

# No `if __name__ == "__main__"`: a worker must not run the script again, nor need it to be importable.
SCRIPT = """
print("the script runs")
from pathlib import Path
import gymnasium
import htsrl

class Shifted(gymnasium.ObservationWrapper):
    def observation(self, observation):
        return observation

experiment = htsrl.Experiment(
    env=lambda **arguments: Shifted(gymnasium.make("CartPole-v1", **arguments)),
    env_args={"sutton_barto_reward": True},
    algorithm=htsrl.PPO(num_minibatches=2, epochs=2, learning_rate=0.01),
    network=htsrl.Network(hidden_sizes=(16,)),
    num_envs=3, sync_interval=8, total_steps=72, seed=5,
)
placement = htsrl.Placement(num_executors=1, run_dir=Path("from_script"), progress="off", tensorboard=False)
print(htsrl.train(htsrl.Config(experiment, placement)).digest)
"""

MODULE = """
import gymnasium

def make_env(**arguments):
    return gymnasium.make("CartPole-v1", **arguments)
"""


class Runs:
    """Runs in one folder, made once for all tests of this file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outcomes: dict[str, Outcome] = {}

    def train(self, name: str, *arguments: str) -> None:
        self.outcomes[name] = run_htsrl(self.folder, "train", *arguments, "--run-dir", name)
        assert self.outcomes[name].exit_code == 0, self.outcomes[name].stderr

    def document(self, name: str) -> Any:
        return json.loads((self.folder / name / "config.json").read_text())

    def digest(self, name: str) -> str:
        return str(json.loads((self.folder / name / "result.json").read_text())["digest"])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    made = Runs(tmp_path_factory.mktemp("round_trip"))
    made.train("first", "CartPole-v1", *FLAGS)
    return made


@pytest.fixture(scope="module")
def script(runs: Runs) -> Outcome:
    (runs.folder / "script.py").write_text(SCRIPT)
    return run_python(runs.folder, "script.py")


def test_a_run_from_the_file_of_another_ends_with_the_same_digest(runs: Runs) -> None:
    runs.train("again", "--config", "first/config.json")
    assert runs.digest("again") == runs.digest("first")
    again, first = runs.document("again"), runs.document("first")
    assert again["placement"].pop("run_dir") == "again"
    assert first["placement"].pop("run_dir") == "first"
    assert again == first


def test_flags_go_before_the_file_and_another_algorithm_brings_its_own_settings(runs: Runs) -> None:
    flags = ("--algo", "a2c", "--seed", "6", "--gae-lambda", "0.5", "--env-arg", "sutton_barto_reward=false")
    runs.train("other", "--config", "first/config.json", *flags)
    other, first = runs.document("other")["experiment"], runs.document("first")["experiment"]
    assert other["algorithm"] == {"name": "a2c", **other["algorithm"], "learning_rate": 7e-4, "gae_lambda": 0.5}
    assert "clip_range" not in other["algorithm"]
    assert other["seed"] == 6
    assert other["env_args"] == {"sutton_barto_reward": False}
    for unchanged in ("env", "num_envs", "sync_interval", "total_steps", "network"):
        assert other[unchanged] == first[unchanged]
    assert runs.digest("other") != runs.digest("first")


def test_a_lambda_trains_in_processes_from_a_script_without_a_main_guard(runs: Runs, script: Outcome) -> None:
    assert script.exit_code == 0, script.stderr
    assert "htsrl.placements.worker" in script.started_processes
    assert script.stdout.split("\n") == ["the script runs", runs.digest("first"), ""]


def test_a_lambda_cannot_be_loaded_from_a_file_and_the_error_says_what_to_do(runs: Runs, script: Outcome) -> None:
    assert script.exit_code == 0, script.stderr
    outcome = run_htsrl(runs.folder, "train", "--config", "from_script/config.json", "--run-dir", "never")
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith("error: the environment is the callable __main__:<lambda>")
    assert "from Python" in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert not (runs.folder / "never").exists()


def test_a_file_of_settings_alone_takes_its_environment_from_the_command_line(runs: Runs) -> None:
    document = runs.document("first")
    del document["experiment"]["env"]
    assert understood(runs, document, "CartPole-v1")


def test_a_callable_of_a_module_is_found_again_by_its_name(runs: Runs) -> None:
    (runs.folder / "my_module.py").write_text(MODULE)
    document = runs.document("first")
    document["experiment"]["env"] = "callable my_module:make_env"
    assert understood(runs, document, "--trust")
    assert not understood(runs, document), "a file that htsrl did not write"
    document["experiment"]["env"] = "callable my_module:make_enf"
    assert not understood(runs, document, "--trust")


def test_an_environment_on_the_command_line_goes_before_the_callable_of_the_file(runs: Runs) -> None:
    (runs.folder / "my_module.py").write_text(MODULE)
    document = runs.document("first")
    document["experiment"]["env"] = "callable my_module:make_env"
    assert understood(runs, document, "Acrobot-v1")


def understood(runs: Runs, document: Any, *arguments: str) -> bool:
    """Whether the file was understood: then a bad flag is all there is to complain about."""
    (runs.folder / "edited.json").write_text(json.dumps(document))
    outcome = run_htsrl(runs.folder, "train", *arguments, "--config", "edited.json", "--num-envs", "0")
    return outcome.stderr == "error: num_envs=0 must be at least 1\n"
