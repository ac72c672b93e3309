"""Presets are the published settings, and the command line finds the right one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from htsrl import A2C, PPO, Config, ConfigError, preset
from htsrl.algorithms.batch import Batch
from htsrl.algorithms.objective import PolicyOutputs
from htsrl.algorithms.ppo.algorithm import PPOObjective, PPOTargets
from htsrl.algorithms.returns import Transitions
from htsrl.cli.train import train_defaults
from htsrl.config.algorithm_settings import CommonSettings, own_settings
from htsrl.config.check import check
from htsrl.config.command_line import train_command
from htsrl.config.presets import KINDS, preset_name, presets_of
from htsrl.policies.distributions import Categorical


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ("ALE/Pong-v5", "atari"),
        ("football/academy_corner-v0", "football"),
        ("HalfCheetah-v5", "mujoco"),
        ("Humanoid-v5", "mujoco"),
        ("CartPole-v1", "classic_control"),
        ("FrozenLake-v1", None),
        ("NoSuch-v0", None),
    ],
)
def test_the_id_tells_the_preset(env: str, name: str | None) -> None:
    assert preset_name(env) == name


@pytest.mark.parametrize(("name", "algo"), [(name, algo) for algo in own_settings() for name in presets_of(algo)])
def test_every_preset_can_be_run(name: str, algo: str) -> None:
    assert name in KINDS
    experiment = preset("CartPole-v1", algo, name)
    required = CommonSettings.of(experiment.algorithm).required_network
    assert check(Config(experiment)).experiment == replace(experiment, network=replace(experiment.network, **required))
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
    assert (football.algorithm.value_coefficient, football.algorithm.advantage_normalization) == (0.25, "batch")


def test_footballs_loss_is_that_of_the_released_code_by_hand() -> None:
    """A batch of four steps in two minibatches of one epoch, the policy and the values where they were but for step 3.

    Advantages 1, 2, 3, 6 have mean 3 and squares of deviations 4 + 1 + 0 + 9 = 14, so with n - 1 under the root, as
    torch's std has it, deviation sqrt(14 / 3) = 2.160247: normalised -0.925816, -0.462908, 0, 1.388724. Normalised by
    minibatches, 1 and 2 would be -0.707107 and 0.707107.
    """
    settings = preset("football/academy_corner-v0").algorithm
    assert isinstance(settings, PPO)
    rows = torch.tensor([1.0, 2.0, 3.0, 6.0])
    zeros_TB, never_TB = torch.zeros(4, 1), torch.zeros(4, 1, dtype=torch.bool)
    # Values 0 everywhere and unrolls of one step: an advantage is its reward, and a return too.
    steps = Transitions(rows[:, None], zeros_TB, zeros_TB, never_TB, never_TB)
    batch = Batch({"obs": torch.zeros(4, 1, 1)}, zeros_TB.long(), torch.full((4, 1), 0.5).log(), steps)
    targets = PPOTargets(*torch.full((4, 4), torch.nan))
    objective = PPOObjective(settings, batch, targets)
    targets.returns.copy_(rows)
    objective.normalize_all_advantages(rows)
    assert targets.advantages.tolist() == pytest.approx([-0.925816, -0.462908, 0.0, 1.388724], abs=2e-5)
    # Epsilon 1e-5: -2 / (2.160247 + 0.00001), which 1e-8 would leave at -0.9258201.
    assert targets.advantages[0].item() == pytest.approx(-0.9258158, abs=4e-7)

    # Steps 0 and 3. Both actions have probability 1/2, as when acting: ratios 1, and the policy's loss is
    # -(-0.925816 + 1.388724) / 2 = -0.231454. Values are now 0.05 and 1; the second may have moved by 0.08 only:
    # max((1 - 6)^2, (0.08 - 6)^2) = 35.0464, the first (0.05 - 1)^2 = 0.9025. The released code takes half of their
    # mean 17.97445, and half of that: 4.4936125. Entropy ln 2 = 0.693147 times 0.003 = 0.002079.
    chosen = torch.tensor([0, 3])
    distribution = Categorical(torch.zeros(2, 2))
    seen = PolicyOutputs(chosen, torch.zeros(2, dtype=torch.int64), distribution, torch.tensor([0.05, 1.0]))
    loss = objective.loss(seen)
    assert loss.policy.item() == pytest.approx(-0.231454, abs=1e-5)
    assert settings.value_coefficient * loss.value.item() == pytest.approx(4.4936125, rel=1e-6)
    assert loss.total.item() == pytest.approx(-0.231454 + 4.4936125 - 0.002079, abs=2e-5)


def test_an_unknown_preset_is_answered_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="there is no preset for 'FrozenLake-v1'; name one of atari, classic_control"):
        preset("FrozenLake-v1")
    with pytest.raises(ConfigError, match="preset 'doom' is not known"):
        preset("CartPole-v1", name="doom")
    with pytest.raises(ConfigError, match="preset 'atari' has no settings for 'sac'"):
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
