"""Presets are the published settings, and the command line finds the right one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from htsrl import A2C, PPO, Config, ConfigError, preset
from htsrl.bench.command_line import train_command
from htsrl.cli_train import train_defaults
from htsrl.config_check import check
from htsrl.presets import PRESETS, preset_name


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ("ALE/Pong-v5", "atari"),
        ("football/academy_corner-v0", "football"),
        ("HalfCheetah-v5", "mujoco"),
        ("Humanoid-v5", "mujoco"),
        ("CartPole-v1", None),
        ("NoSuch-v0", None),
    ],
)
def test_the_id_tells_the_preset(env: str, name: str | None) -> None:
    assert preset_name(env) == name


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("algo", ["ppo", "a2c"])
def test_every_preset_can_be_run(name: str, algo: str) -> None:
    experiment = preset("CartPole-v1", algo, name)
    assert check(Config(experiment)).experiment == experiment
    assert experiment.algorithm.name == algo


def test_the_papers_settings() -> None:
    atari = preset("ALE/Pong-v5", "a2c")
    assert isinstance(atari.algorithm, A2C)
    assert (atari.num_envs, atari.interval_steps, atari.algorithm.optimizer, atari.total_steps) == (
        16, 5, "rmsprop", 20_000_000,
    )  # fmt: skip
    football = preset("football/academy_corner-v0")
    assert isinstance(football.algorithm, PPO)
    assert (football.algorithm.clip_range, football.algorithm.value_clip_range, football.algorithm.discount) == (
        0.08, 0.08, 0.993,
    )  # fmt: skip
    assert (football.algorithm.epochs, football.algorithm.num_minibatches, football.interval_steps) == (2, 8, 128)
    assert (football.algorithm.learning_rate, football.algorithm.anneal_learning_rate) == (3.43e-4, True)
    assert (football.algorithm.max_gradient_norm, football.algorithm.entropy_coefficient) == (0.64, 0.003)


def test_an_unknown_preset_is_answered_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="there is no preset for 'CartPole-v1'; name one of atari, football, mujoco"):
        preset("CartPole-v1")
    with pytest.raises(ConfigError, match="preset 'doom' is not known"):
        preset("CartPole-v1", name="doom")
    with pytest.raises(ConfigError, match="algo='sac' is not known"):
        preset("ALE/Pong-v5", "sac")


def test_the_command_line_starts_from_the_environments_preset() -> None:
    flags = train_defaults(["train", "--num-envs", "8", "ALE/Pong-v5"])
    assert (flags.preset, flags.experiment.algorithm) == ("atari", preset("ALE/Pong-v5").algorithm)
    assert train_defaults(["train", "ALE/Pong-v5", "--algo", "a2c"]).experiment.sync_interval == 5
    assert train_defaults(["train", "ALE/Pong-v5", "--preset", "none"]).experiment.algorithm == PPO()
    assert train_defaults(["train", "CartPole-v1"]).preset == "none"
    assert train_defaults(["train", "CartPole-v1", "--run-dir", "ALE/Pong-v5"]).preset == "none"
    assert train_defaults(["train", "CartPole-v1", "--import", "HalfCheetah-v5"]).preset == "none"
    assert train_defaults(["train", "--no-tensorboard", "ALE/Pong-v5"]).preset == "atari"
    assert train_defaults(["train", "--total-steps=9", "ALE/Pong-v5"]).preset == "atari"
    assert train_defaults(["train", "ale_py:ALE/Pong-v5"]).preset == "atari"
    assert train_defaults(["train", "CartPole-v1", "--preset", "mujoco"]).experiment.network.normalize_observations


def test_a_command_that_repeats_a_run_leaves_out_what_the_preset_says() -> None:
    experiment = preset("ALE/Pong-v5")
    assert "--clip-range" not in train_command(experiment, 10)
    longer = replace(experiment, algorithm=replace(experiment.algorithm, learning_rate=1e-3))
    assert "--learning-rate 0.001" in train_command(longer, 10)
