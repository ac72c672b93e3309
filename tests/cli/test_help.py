"""`--help` answers at once and names the flags that matter, `--help-all` every one."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from command_line import Outcome, run_htsrl

from htsrl.algorithms.a2c import A2C
from htsrl.algorithms.ppo import PPO
from htsrl.cli.arguments import Flags
from htsrl.cli.help import MAIN_SETTINGS, TEST_SETTINGS
from htsrl.cli.resume import Resume
from htsrl.cli.train import train_command
from htsrl.config import Network

TRAIN_FLAGS = (
    *("--algo", "--schedule", "--num-envs", "--sync-interval", "--total-steps", "--seed", "--stop-at-return"),
    *("--placement", "--num-executors", "--num-actors", "--device", "--run-dir", "--deadline-seconds"),
    *("--import", "--env-arg", "--config", "--eval-episodes"),
)


@pytest.fixture(scope="module")
def help_of(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    folder = tmp_path_factory.mktemp("help")
    return {
        "": run_htsrl(folder, "--help"),
        "short": run_htsrl(folder, "train", "--jitter-seconds", "1", "--help"),
        "default": run_htsrl(folder, "train", "--help-all"),
        "ppo": run_htsrl(folder, "train", "--algo", "ppo", "--help-all"),
        "a2c": run_htsrl(folder, "train", "--algo", "a2c", "--help-all"),
        "resume": run_htsrl(folder, "resume", "--help-all"),
    }


def flag_of(field_name: str) -> str:
    return "--" + field_name.replace("_", "-")


def flags_in(text: str) -> set[str]:
    return set(re.findall(r"--[a-z][a-z0-9-]*", text))


def shown_flags(page: str) -> list[str]:
    """The flags that have an entry of their own, in order."""
    entries = re.findall(r"^│ (?:-[a-z], )?(--[^│]*)", page, re.MULTILINE)
    return [flag for entry in entries for flag in re.findall(r"(?:^|, )(--[a-z0-9-]+)", entry)]


def test_help_exits_with_zero_and_says_nothing_on_stderr(help_of: dict[str, Outcome]) -> None:
    for outcome in help_of.values():
        assert (outcome.exit_code, outcome.stderr) == (0, "")


def test_the_commands_are_listed(help_of: dict[str, Outcome]) -> None:
    for command in ("train", "eval", "digest", "compare", "check-env"):
        assert re.search(rf"\b{command}\b", help_of[""].stdout)


@pytest.mark.parametrize("algo", ["default", "ppo", "a2c"])
@pytest.mark.parametrize("flag", TRAIN_FLAGS)
def test_train_help_names_the_flag(help_of: dict[str, Outcome], algo: str, flag: str) -> None:
    assert flag in flags_in(help_of[algo].stdout)


@pytest.mark.parametrize("algo", sorted({"a2c": A2C, "ppo": PPO}))
def test_train_help_names_every_hyperparameter_of_the_algorithm(help_of: dict[str, Outcome], algo: str) -> None:
    settings = {flag_of(field.name) for cls in ({"a2c": A2C, "ppo": PPO}[algo], Network) for field in fields(cls)}
    assert settings <= flags_in(help_of[algo].stdout)


def test_help_shows_the_twenty_settings_that_matter_and_where_the_others_are(help_of: dict[str, Outcome]) -> None:
    named = {
        flag_of({"backend": "placement"}.get(name, name))
        for name in {*MAIN_SETTINGS["train"], *PPO.main_settings} - {"env"}
    }
    shown = [flag for flag in shown_flags(help_of["short"].stdout) if not flag.startswith("--no-")]
    assert len(named) == 20
    assert sorted(shown) == sorted({*named, "--help"})
    assert "htsrl train --help-all" in help_of["short"].stdout


@pytest.mark.parametrize(("page", "command"), [("ppo", train_command("ppo")), ("resume", Resume)])
def test_the_long_help_has_every_flag_of_the_parser_once_and_those_for_tests_last(
    help_of: dict[str, Outcome], page: str, command: type
) -> None:
    shown = [flag for flag in shown_flags(help_of[page].stdout) if not flag.startswith("--no-")]
    declared = Flags(command).names - {"--env" if page == "ppo" else "--run-dir"}  # a word of the command line
    assert sorted(shown) == sorted({*declared, "--help"})
    assert set(shown[-len(TEST_SETTINGS) :]) == {flag_of(name) for name in TEST_SETTINGS}


@pytest.mark.parametrize("name", ["--given", "--named", "--env-args"])
def test_what_the_command_hands_itself_is_no_flag(tmp_path: Path, name: str) -> None:
    outcome = run_htsrl(tmp_path, "train", "CartPole-v1", name, "a")
    assert outcome.exit_code == 2
    assert "Unrecognized options" in outcome.stderr


def test_the_hyperparameters_of_another_algorithm_are_not_offered(help_of: dict[str, Outcome]) -> None:
    only_ppo = {flag_of(field.name) for field in fields(PPO)} - {flag_of(field.name) for field in fields(A2C)}
    assert "--clip-range" in only_ppo
    assert not only_ppo & flags_in(help_of["a2c"].stdout)
    assert only_ppo <= flags_in(help_of["default"].stdout)


def test_the_defaults_are_shown_as_one_would_type_them(help_of: dict[str, Outcome]) -> None:
    assert default_of("--algo", help_of["default"].stdout) == "ppo"
    assert default_of("--algo", help_of["a2c"].stdout) == "a2c"
    assert default_of("--learning-rate", help_of["a2c"].stdout) == "0.0007"


def default_of(flag: str, text: str) -> str:
    """What the help gives as the flag's default; the first one after its name."""
    _, _, rest = text.partition(f" {flag} ")
    found = re.search(r"\(default: (.*?)\)", rest)
    assert found is not None
    return found[1]


def test_help_starts_no_process_and_writes_nothing(tmp_path: Path) -> None:
    outcome = run_htsrl(tmp_path, "train", "--help")
    assert outcome.started_processes == ""
    assert list(tmp_path.iterdir()) == []
