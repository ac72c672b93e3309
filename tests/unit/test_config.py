"""A configuration that cannot work is refused by name, through the Python API as on the command line."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest
from gymnasium import spaces
from hypothesis import assume, given
from hypothesis import strategies as st

from htsrl import A2C, PPO, Config, ConfigError, Experiment, Network, Placement, train
from htsrl.config import available_cores, with_seed
from htsrl.config.check import check
from htsrl.config.check_sizes import check_shards

ENV = "CartPole-v1"


def configure(
    algorithm: A2C | PPO | None = None, network: Network | None = None, placement: Placement | None = None, **rest: Any
) -> Config:
    experiment = Experiment(
        **{"env": ENV, "algorithm": algorithm or PPO(num_minibatches=4), "network": network or Network(), **rest},
    )
    return Config(experiment, placement or Placement())


def test_the_defaults_work() -> None:
    check(configure())
    check(configure(A2C()))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (configure(num_envs=0), "num_envs=0 must be at least 1"),
        (configure(num_envs=-4), "num_envs=-4 must be at least 1"),
        (configure(total_steps=0), "total_steps=0 must be at least 1"),
        (configure(sync_interval=0), "sync_interval=0 must be at least 1"),
        (configure(sync_interval=-8), "sync_interval=-8 must be at least 1"),
        (configure(A2C(unroll_length=0)), "unroll_length=0 must be at least 1"),
        (configure(A2C(unroll_length=-5)), "unroll_length=-5 must be at least 1"),
        (configure(seed=-1), "seed=-1 must be from 0"),
        (configure(seed=2**63), f"seed={2**63} must be from 0"),
        (configure(schedule="asap"), "schedule 'asap' is not known; use hts, sync, lockstep, async"),
        (configure(schedule="async", queue_length=1), "queue_length=1 must be from 2 to 1024"),
        (
            configure(schedule="hts", queue_length=4),
            "queue_length=4 is for schedule=async; hts has no queue: leave it out",
        ),
        (configure(schedule="hts", lag=-1), "lag=-1 must be from 0 to 1000"),
        (configure(schedule="hts", lag=1001), "lag=1001 must be from 0 to 1000"),
        (configure(schedule="sync", lag=1), "lag=1 is for schedule=hts; sync has a lag of 0: leave it out"),
        (configure(schedule="lockstep", lag=0), "lag=0 is for schedule=hts; lockstep has a lag of 0: leave it out"),
        (
            configure(schedule="async", lag=2),
            "lag=2 is for schedule=hts; async has whatever lag it comes to, see queue_length: leave it out",
        ),
        (configure(schedule="async", queue_length=1025), "queue_length=1025 must be from 2 to 1024"),
        (
            configure(A2C(lag_correction="delayed_gradient"), schedule="async"),
            "lag_correction=delayed_gradient needs data of one known version.*use vtrace, importance or none",
        ),
        (
            configure(PPO(lag_correction="delayed_update"), schedule="async"),
            "lag_correction=delayed_update needs data of one known version.*use recentered, decoupled or none",
        ),
        (
            configure(PPO(clip_range=0.5)),
            "clip_range=0.5 times first_epoch_clip_factor=2 clips no ratio from below.*use a clip_range below 0.5, "
            "a first_epoch_clip_factor below 2, or another lag_correction",
        ),
        (configure(PPO(first_epoch_clip_factor=0.5)), "first_epoch_clip_factor=0.5 must be at least 1"),
        (configure(PPO(max_importance_weight=0.5)), "max_importance_weight=0.5 must be at least 1"),
        (configure(A2C(lag_correction="retrace")), "lag_correction='retrace' .*delayed_gradient.*vtrace"),  # type: ignore[arg-type]
        (
            configure(A2C(normalize_rewards=True), schedule="async"),
            "normalize_rewards=True follows .*schedule=async.*--no-normalize-rewards, or use hts",
        ),
        (configure(PPO(normalize_rewards=True), schedule="async"), "normalize_rewards=True follows"),
        (
            configure(schedule="hts", replay_schedule=Path("runs/one")),
            "replay_schedule=runs/one is for schedule=async; runs under hts repeat themselves from their seed",
        ),
        (configure(network=Network(hidden_sizes=(64, 0))), r"hidden_sizes=\(64, 0\) must be all at least 1"),
        (configure(PPO(learning_rate=0.0)), "learning_rate=0.0 must be above 0"),
        (configure(PPO(learning_rate=float("nan"))), "learning_rate=nan must be"),
        (configure(A2C(max_gradient_norm=0.0)), "max_gradient_norm=0.0 must be above 0"),
        (configure(PPO(discount=1.01)), "discount=1.01 must be from 0 to 1"),
        (configure(PPO(gae_lambda=-0.1)), "gae_lambda=-0.1 must be from 0 to 1"),
        (configure(PPO(epochs=0)), "epochs=0 must be at least 1"),
        (configure(PPO(num_minibatches=0)), "num_minibatches=0 must be at least 1"),
        (configure(PPO(clip_range=0.0)), "clip_range=0.0 must be above 0"),
        (configure(placement=Placement(num_executors=0)), "num_executors=0 must be at least 1"),
        (configure(placement=Placement(num_executors=-1)), "num_executors=-1 must be at least 1"),
        (
            configure(placement=Placement(num_executors=17)),
            "num_executors=17 is more than num_envs=16; use 16 or fewer",
        ),
        (configure(placement=Placement(num_actors=-1)), "num_actors=-1 must be 0 or more"),
        (configure(gradient_shards=0), "gradient_shards=0 must be at least 1"),
        (configure(placement=Placement(learner_workers=0)), "learner_workers=0 must be at least 1"),
        (
            configure(placement=Placement(learner_workers=3), gradient_shards=2),
            "learner_workers=3 is more than gradient_shards=2, which they share out; use 2 or fewer",
        ),
        (
            configure(placement=Placement(learner_workers=2, device="cuda"), gradient_shards=2),
            "learner_workers=2 share out work on the CPU; with device=cuda use 1",
        ),
        (configure(placement=Placement(num_actors=17)), "num_actors=17 is more than num_envs=16"),
        (configure(placement=Placement(deadline_seconds=0)), "deadline_seconds=0.0 must be above 0"),
        (configure(placement=Placement(jitter_seconds=-1)), "jitter_seconds=-1.0 must be 0 or more"),
        (configure(placement=Placement(log_every_steps=0)), "log_every_steps=0 must be at least 1"),
        # The file and the command line cannot say these, Python can.
        (configure(env_args={"size": 3, "reward": print}), "env_args.*'reward'.*callable"),
        (configure(placement=Placement(backend="procesess")), "backend='procesess' .*inline.*processes"),  # type: ignore[arg-type]
        (configure(placement=Placement(progress="none")), "progress='none' .*auto.*live.*plain.*off"),  # type: ignore[arg-type]
        (configure(PPO(optimizer="sgd")), "optimizer='sgd' .*rmsprop.*adam"),  # type: ignore[arg-type]
        (configure(network=Network(encoder="cnn")), "encoder='cnn' .*auto.*mlp.*nature_cnn"),  # type: ignore[arg-type]
        (configure(network=Network(activation="gelu")), "activation='gelu' .*tanh.*relu"),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_cannot_work_is_named_with_the_rule(config: Config, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(config)


def test_minibatches_that_do_not_divide_the_batch_are_answered_with_numbers_that_do() -> None:
    with pytest.raises(ConfigError, match=r"batches of 48, .* num_minibatches=5; use 4 or 6"):
        check(configure(PPO(num_minibatches=5), num_envs=4, sync_interval=12))


def test_a_minibatch_of_one_step_cannot_be_normalized() -> None:
    with pytest.raises(
        ConfigError, match=r"normalize_advantages=True needs two or more steps per gradient.*fewer minibatches"
    ):
        check(configure(PPO(num_minibatches=8), num_envs=1, sync_interval=8))
    check(configure(PPO(num_minibatches=8, advantage_normalization="batch"), num_envs=1, sync_interval=8))
    check(configure(PPO(num_minibatches=8, normalize_advantages=False), num_envs=1, sync_interval=8))


def test_an_unroll_that_does_not_divide_the_interval_is_answered_with_intervals_that_fit() -> None:
    with pytest.raises(ConfigError, match="sync_interval=10 is not a multiple of unroll_length=4; use 8 or 12"):
        check(configure(A2C(unroll_length=4), sync_interval=10))
    with pytest.raises(ConfigError, match=r"sync_interval=5 is not a multiple of unroll_length=7; use 7$"):
        check(configure(A2C(unroll_length=7)))


sizes = st.integers(1, 64)


@given(num_envs=sizes, alpha=sizes, pieces=sizes)
def test_the_numbers_of_minibatches_that_an_error_proposes_do_work(num_envs: int, alpha: int, pieces: int) -> None:
    def config(num_minibatches: int) -> Config:
        algorithm = PPO(num_minibatches=num_minibatches, normalize_advantages=False)
        return configure(algorithm, num_envs=num_envs, sync_interval=alpha, placement=Placement(num_executors=1))

    assume(num_envs * alpha % pieces != 0)
    with pytest.raises(ConfigError) as refusal:
        check(config(pieces))
    for proposed in str(refusal.value).rpartition("; use ")[2].split(" or "):
        check(config(int(proposed)))


@given(alpha=sizes, unroll=sizes)
def test_the_intervals_that_an_error_proposes_do_work(alpha: int, unroll: int) -> None:
    assume(alpha % unroll != 0)
    with pytest.raises(ConfigError) as refusal:
        check(configure(A2C(unroll_length=unroll), sync_interval=alpha))
    for proposed in str(refusal.value).rpartition("; use ")[2].split(" or "):
        check(configure(A2C(unroll_length=unroll), sync_interval=int(proposed)))


@given(num_envs=sizes, alpha=st.none() | sizes, total_steps=st.integers(1, 10**6))
def test_the_total_is_rounded_up_to_whole_intervals(num_envs: int, alpha: int | None, total_steps: int) -> None:
    experiment = configure(num_envs=num_envs, sync_interval=alpha, total_steps=total_steps).experiment
    steps = experiment.num_intervals * experiment.batch_steps
    assert total_steps <= steps < total_steps + experiment.batch_steps


def test_an_interval_that_is_not_given_is_the_algorithms_own() -> None:
    assert configure(A2C()).experiment.interval_steps == 5
    assert configure(PPO()).experiment.interval_steps == 128
    assert configure(PPO(), sync_interval=7).experiment.interval_steps == 7
    assert configure(PPO(), sync_interval=7).experiment.unroll_steps == 7


def test_workers_that_are_not_counted_fit_the_machine() -> None:
    assert Placement().resolved_executors(num_envs=1) == 1
    assert Placement().resolved_executors(num_envs=10_000) == available_cores()
    assert Placement().resolved_executors(num_envs=10_000, leave_a_core=True) == max(available_cores() - 1, 1)
    assert Placement(num_executors=3).resolved_executors(num_envs=10_000, leave_a_core=True) == 3
    assert Placement().resolved_actors() == 0
    assert Placement(device="cuda").resolved_actors() == 1
    assert Placement(device="cuda", num_actors=0).resolved_actors() == 0
    assert Placement().resolved_learner_workers(gradient_shards=1) == 1
    assert Placement().resolved_learner_workers(gradient_shards=10_000) == available_cores()
    assert Placement(learner_workers=3).resolved_learner_workers(gradient_shards=4) == 3
    assert Placement(learner_workers=3, backend="inline").resolved_learner_workers(gradient_shards=4) == 1
    assert Placement(device="cuda").resolved_learner_workers(gradient_shards=4) == 1


def test_another_seed_leaves_the_rest_as_it_was() -> None:
    config = configure(A2C(), num_envs=3)
    assert with_seed(config, 9) == dataclasses.replace(
        config, experiment=dataclasses.replace(config.experiment, seed=9)
    )


@pytest.mark.parametrize(
    ("config", "num_columns", "message"),
    [
        (configure(A2C(), gradient_shards=81), 16, "gradient_shards=81 is more than the 80 steps of a gradient"),
        (configure(A2C(), gradient_shards=241), 48, "gradient_shards=241 is more than the 240 steps of a gradient"),
        (configure(gradient_shards=513), 16, "gradient_shards=513 is more than the 512 steps of a gradient; use 512"),
        (
            configure(network=Network(recurrent="gru"), gradient_shards=17),
            16,
            "gradient_shards=17 is more than the 16 sequences of 32 steps of a gradient; use 16 or fewer",
        ),
    ],
)
def test_there_are_no_more_shards_than_a_gradient_has_steps_or_sequences(
    config: Config, num_columns: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_shards(config.experiment, num_columns)
    fewer = dataclasses.replace(config.experiment, gradient_shards=config.experiment.gradient_shards - 1)
    check_shards(fewer, num_columns)


# What only a look at the environment can tell, through htsrl.train.


class Wrong(gymnasium.Env[Any, Any]):
    """An environment with the given spaces that does as told."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], shift: float = 0) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self._shift = shift

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation = self.observation_space.sample()
        if self._shift:
            observation = observation + np.float32(self._shift)
        return observation, 0.0, False, False, {}


VECTOR = spaces.Box(-1, 1, (2,), np.float32)
CHOICE = spaces.Discrete(2)


def needs_a_lock() -> Callable[..., Any]:
    lock = threading.Lock()
    return lambda: gymnasium.make(ENV) if lock else None


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (configure(env="CartPoel-v1"), "'CartPoel-v1' is not a registered environment; did you mean CartPole-v1"),
        (configure(env=lambda: Wrong(VECTOR, CHOICE, shift=math.nan)), "not finite"),
        (
            configure(env=lambda: Wrong(spaces.Tuple([CHOICE, spaces.Text(5)]), CHOICE)),
            r"observation space Text.*not supported \(in 'obs/1'\)",
        ),
        (configure(env=lambda: Wrong(VECTOR, spaces.Text(3))), "action space Text.*not supported"),
        (configure(env=lambda: Wrong(VECTOR, spaces.Box(0, 9, (2,), np.int64))), "action space Box.*not supported"),
        (
            configure(
                env=lambda: Wrong(spaces.Box(0, 255, (20, 24, 3), np.uint8), CHOICE),
                network=Network(encoder="nature_cnn"),
            ),
            "20x24 are too small.*36x36",
        ),
        (configure(network=Network(encoder="nature_cnn")), "nature_cnn.*image"),
        (configure(placement=Placement(device="cuda:97")), "device=cuda:97 cannot be used.*use one of cpu"),
        (configure(placement=Placement(device="toaster")), "device=toaster cannot be used.*use one of cpu"),
        (configure(env=needs_a_lock()), "cannot pickle.*lock.*inline"),
        (configure(env=gymnasium.make(ENV)), "must be a Gymnasium id or a callable"),
    ],
)
def test_a_run_that_cannot_work_starts_nothing_and_writes_nothing(
    config: Config, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    placement = dataclasses.replace(config.placement, run_dir=tmp_path / "run", tensorboard=False, progress="off")
    experiment = dataclasses.replace(config.experiment, total_steps=1, num_envs=2, sync_interval=8)
    children_before = set(psutil.Process().children(recursive=True))
    with pytest.raises(ConfigError, match=message):
        train(Config(experiment, placement))
    assert list(tmp_path.iterdir()) == []
    assert set(psutil.Process().children(recursive=True)) <= children_before


def test_a_run_folder_may_be_given_as_text_and_is_refused_when_it_exists(tmp_path: Path) -> None:
    run_dir: Any = str(tmp_path)
    with pytest.raises(ConfigError, match=r"run_dir=\S+ exists already; choose another"):
        train(configure(placement=Placement(backend="inline", run_dir=run_dir)))


@pytest.mark.parametrize(
    ("algorithm", "schedule"),
    [
        (PPO(clip_range=0.5), "sync"),
        (PPO(clip_range=0.5, lag_correction="none"), "hts"),
        (PPO(clip_range=0.5, lag_correction="decoupled"), "async"),
        (PPO(clip_range=0.5, first_epoch_clip_factor=1.5), "hts"),
        (PPO(clip_range=1.0), "hts"),
    ],
)
def test_a_clip_that_is_void_from_below_is_the_users_own_or_refused(algorithm: PPO, schedule: str) -> None:
    """What htsrl widens by itself stays a clip on both sides; whoever sets 1 or more has asked for one side."""
    check(configure(algorithm, schedule=schedule))
