"""What nobody asked for never stops a run: a number that fits is chosen, said in a line and written down."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from htsrl import A2C, PPO, Config, ConfigError, Experiment, Network, Placement, check_env, preset, train
from htsrl.config.check import check
from htsrl.config.check_sizes import check_shards
from htsrl.config.fit import choices, fitted

ENVS = st.integers(1, 40)
INTERVALS = st.one_of(st.none(), st.integers(1, 200))
KINDS = st.sampled_from(["none", "lstm", "gru"])
SCHEDULES = st.sampled_from(["hts", "sync", "lockstep", "async"])
PRESETS = [("atari", "ppo"), ("atari", "a2c"), ("football", "ppo"), ("mujoco", "ppo"), ("mujoco", "a2c")]
QUIET: dict[str, Any] = {"backend": "inline", "num_executors": 1, "tensorboard": False, "progress": "off"}


class SmallImages(gymnasium.Env[NDArray[np.uint8], Any]):
    observation_space = spaces.Box(0, 255, (10, 10, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._seen(), 1.0, bool(self.np_random.random() < 0.1), False, {}

    def _seen(self) -> NDArray[np.uint8]:
        return self.np_random.integers(0, 256, (10, 10, 3), np.uint8)


@given(ENVS, INTERVALS, KINDS, SCHEDULES, st.sampled_from([A2C, PPO]))
def test_the_defaults_work_with_any_number_of_environments_and_steps(
    num_envs: int,
    sync_interval: int | None,
    recurrent: Literal["none", "lstm", "gru"],
    schedule: Literal["hts", "sync", "lockstep", "async"],
    algorithm: type[A2C] | type[PPO],
) -> None:
    assume(num_envs != 1 or sync_interval != 1)  # one step, whose advantage cannot be normalised
    experiment = Experiment(
        "CartPole-v1",
        algorithm=algorithm(),
        network=Network(recurrent=recurrent),
        schedule=schedule,
        num_envs=num_envs,
        sync_interval=sync_interval,
    )
    checked = check(Config(experiment)).experiment
    check_shards(checked, num_envs)
    assert checked.batch_steps // checked.sequence_steps % checked.num_minibatches == 0


@given(st.sampled_from(PRESETS), ENVS, INTERVALS, KINDS, SCHEDULES)
def test_presets_work_with_any_number_of_environments_and_steps(
    name: tuple[str, str],
    num_envs: int,
    sync_interval: int | None,
    recurrent: Literal["none", "lstm", "gru"],
    schedule: Literal["hts", "sync", "lockstep", "async"],
) -> None:
    assume(num_envs != 1 or sync_interval != 1)
    wished = preset("CartPole-v1", name[1], name[0])
    wished = replace(wished, network=replace(wished.network, recurrent=recurrent), schedule=schedule, num_envs=num_envs)
    wished = replace(wished, sync_interval=sync_interval or wished.sync_interval)
    experiment = fitted(wished, asked=("num_envs", "sync_interval", "recurrent", "schedule"))
    check_shards(check(Config(experiment)).experiment, num_envs)


@pytest.mark.parametrize(
    ("num_envs", "sync_interval", "recurrent", "expected"),
    [(16, None, "none", 16), (6, None, "lstm", 12), (1, 5, "none", 1), (17, 32, "lstm", 17), (3, 37, "none", 3)],
)
def test_the_number_of_minibatches_is_16_or_the_nearest_that_divides(
    num_envs: int, sync_interval: int | None, recurrent: Literal["none", "lstm"], expected: int
) -> None:
    network = Network(recurrent=recurrent)
    experiment = Experiment("CartPole-v1", network=network, num_envs=num_envs, sync_interval=sync_interval)
    checked = check(Config(experiment)).experiment
    assert isinstance(checked.algorithm, PPO)
    assert checked.algorithm.num_minibatches == expected
    assert len(choices(experiment, checked)) == (expected != 16)


def test_what_was_chosen_is_said_and_written_down_and_repeats(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, Any] = {"num_envs": 6, "total_steps": 1, "network": Network(recurrent="lstm")}
    first = train("CartPole-v1", run_dir=tmp_path / "first", **asked, **QUIET)
    expected = "chosen    --num-minibatches 12, for 24 sequences of 32 steps cannot be cut into the usual 16"
    assert expected in capfd.readouterr().err
    written = json.loads((tmp_path / "first" / "config.json").read_text())["experiment"]["algorithm"]
    assert written["num_minibatches"] == 12
    explicit = train("CartPole-v1", run_dir=tmp_path / "b", algorithm=PPO(num_minibatches=12), **asked, **QUIET)
    assert (explicit.digest, capfd.readouterr().err) == (first.digest, "")


def test_what_was_asked_for_is_refused_where_it_cannot_work() -> None:
    algorithm = PPO(num_minibatches=16)
    experiment = Experiment("CartPole-v1", algorithm=algorithm, num_envs=6, network=Network(recurrent="lstm"))
    with pytest.raises(ConfigError, match=r"24 sequences of 32 steps do not divide .*=16; use 12 or 24"):
        check(Config(experiment))


def test_small_images_train_and_the_network_that_sees_them_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings: dict[str, Any] = {"num_envs": 2, "sync_interval": 4, "total_steps": 1, **QUIET}
    train(SmallImages, run_dir=tmp_path / "run", **settings)
    assert "images of 10x10 are seen by IMPALA's network (--encoder impala)" in capfd.readouterr().err


def test_the_check_of_an_environment_names_it_too() -> None:
    report = check_env(SmallImages, steps=10)
    assert any(finding.topic == "network" and "IMPALA" in finding.text for finding in report.findings)


def test_an_environment_stands_for_a_configuration(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"num_envs": 2, "sync_interval": 4, "total_steps": 1, "seed": 3, **QUIET}
    by_name = train("CartPole-v1", run_dir=tmp_path / "name", **settings)
    by_experiment = train(Experiment("CartPole-v1"), run_dir=tmp_path / "experiment", **settings)
    env: Any = "CartPole-v1"
    by_config = train(Config(env, Placement(run_dir=tmp_path / "config")), **settings)
    assert by_name.digest == by_experiment.digest == by_config.digest


def test_an_unknown_setting_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'num_env' in htsrl.train\(...\); did you mean 'num_envs'"):
        train("CartPole-v1", num_env=3, total_steps=1, device="none, so that nothing is trained")


class MyPPO(PPO):
    def loss(self) -> None: ...


class MyNetwork(Network): ...


class MyExperiment(Experiment): ...


@pytest.mark.parametrize(
    ("experiment", "message"),
    [
        (Experiment("CartPole-v1", algorithm=MyPPO()), "algorithm is of the class MyPPO, .* would not be used"),
        (Experiment("CartPole-v1", network=MyNetwork()), "network is of the class MyNetwork"),
        (MyExperiment("CartPole-v1"), "experiment is of the class MyExperiment"),
    ],
)
def test_a_derived_class_whose_code_would_not_run_is_refused(experiment: Experiment, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(Config(experiment))
