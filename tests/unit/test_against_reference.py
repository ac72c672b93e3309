"""The runtime, with all its roles and slots, against one plain loop: the same bits after every update."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
import torch
import xxhash
from reference_acting import ActorCritic
from reference_training import Reference, padded, train_reference
from safetensors.torch import load_file

import htsrl
from htsrl import A2C, PPO, Config, Experiment, Network, Placement
from htsrl.algorithms.lag_correction import PPOCorrection
from htsrl.digest import read_links

NUM_ENVS = 4
PPO_CORRECTIONS: tuple[PPOCorrection, ...] = get_args(PPOCorrection)

# Episodes end by both causes, at different rows of different intervals.
CARTPOLE: dict[str, Any] = {"env": "CartPole-v1", "env_args": {"max_episode_steps": 23}}
# Never terminates; cut every 7 steps.
PENDULUM: dict[str, Any] = {"env": "Pendulum-v1", "env_args": {"max_episode_steps": 7}}

A2C_DEFAULT = A2C(entropy_coefficient=0.01)
A2C_UNROLLS = A2C(entropy_coefficient=0.01, unroll_length=5, gae_lambda=0.9)
A2C_ADAM = A2C(optimizer="adam", normalize_advantages=True, anneal_learning_rate=False)
PPO_DEFAULT = PPO(entropy_coefficient=0.01, epochs=3, num_minibatches=4)
PPO_EVERYTHING = PPO(
    optimizer="rmsprop",
    unroll_length=4,
    epochs=2,
    num_minibatches=4,
    target_kl=1e-4,  # ends some updates early, not all
    anneal_clip_range=True,
    value_clip_range=0.2,
    normalize_advantages=False,
)
PPO_BY_BATCH = replace(PPO_DEFAULT, advantage_normalization="batch", value_clip_range=0.2)
PPO_FORMS = {
    form: PPO(
        epochs=2,
        num_minibatches=4,
        unroll_length=4,
        learning_rate=0.003,
        value_clip_range=0.1,
        lag_correction=form,
        first_epoch_clip_factor=1.5,
        max_importance_weight=1.05,
    )
    for form in PPO_CORRECTIONS
}


def experiment(
    world: Mapping[str, Any],
    algorithm: A2C | PPO,
    sync_interval: int,
    schedule: Literal["hts", "sync", "lockstep"],
    num_updates: int = 50,
    lag: int | None = None,
) -> Experiment:
    return Experiment(
        **world,
        algorithm=algorithm,
        network=Network(hidden_sizes=(32, 32)),
        schedule=schedule,
        lag=lag,
        num_envs=NUM_ENVS,
        sync_interval=sync_interval,
        total_steps=num_updates * NUM_ENVS * sync_interval,
        seed=3,
    )


def train_htsrl(description: Experiment, run_dir: Path, **placement: Any) -> Path:
    options: dict[str, Any] = {"backend": "inline", "progress": "off", "tensorboard": False, **placement}
    return htsrl.train(Config(description, Placement(run_dir=run_dir, **options))).run_dir


def named_as_in_htsrl(network: ActorCritic) -> dict[str, torch.Tensor]:
    names = {
        "actor.": "encoder.mlp.layers.",
        "critic.": "value_encoder.mlp.layers.",
        "actor_head.": "action_head.",
        "critic_head.": "value_head.",
        "log_std": "log_std",
    }
    parameters = dict(network.named_parameters())
    prefixes = {name: next(prefix for prefix in names if name.startswith(prefix)) for name in parameters}
    return {names[prefixes[name]] + name.removeprefix(prefixes[name]): x.detach() for name, x in parameters.items()}


def first_update_that_differs(run_dir: Path, reference: Reference) -> int | None:
    """By the hash of the flat parameters that the digest keeps for every update."""
    links = read_links(run_dir)
    assert len(links) == len(reference.thetas) - 1
    for link, theta in zip(links, reference.thetas[1:], strict=True):
        flat = flat_parameters(theta)
        if link.parameters != xxhash.xxh3_128_hexdigest(flat.numpy().tobytes()):
            return link.update
    return None


def flat_parameters(theta: ActorCritic) -> torch.Tensor:
    return torch.cat([padded(parameter) for parameter in theta.parameters()])


def assert_same_bits(run_dir: Path, reference: Reference) -> None:
    assert first_update_that_differs(run_dir, reference) is None
    trained, expected = load_file(run_dir / "policy.safetensors"), named_as_in_htsrl(reference.thetas[-1])
    assert trained.keys() == expected.keys()
    assert all(torch.equal(trained[name], expected[name]) for name in trained)
    assert not torch.equal(expected["action_head.weight"], named_as_in_htsrl(reference.thetas[0])["action_head.weight"])


@pytest.mark.parametrize("schedule", ["hts", "sync"])
@pytest.mark.parametrize(
    ("world", "algorithm", "sync_interval", "num_updates"),
    [
        pytest.param(CARTPOLE, A2C_DEFAULT, 5, 50, id="cartpole-a2c"),
        pytest.param(CARTPOLE, A2C_UNROLLS, 20, 50, id="cartpole-a2c-unrolls"),
        pytest.param(CARTPOLE, A2C_ADAM, 1, 50, id="cartpole-a2c-adam-one-step"),
        pytest.param(CARTPOLE, PPO_DEFAULT, 8, 50, id="cartpole-ppo"),
        pytest.param(CARTPOLE, PPO_EVERYTHING, 8, 20, id="cartpole-ppo-everything"),
        pytest.param(CARTPOLE, PPO_BY_BATCH, 8, 20, id="cartpole-ppo-by-batch"),
        pytest.param(PENDULUM, A2C_DEFAULT, 5, 50, id="pendulum-a2c"),
        pytest.param(PENDULUM, PPO_DEFAULT, 8, 50, id="pendulum-ppo"),
        pytest.param(PENDULUM, PPO_EVERYTHING, 8, 20, id="pendulum-ppo-everything"),
    ],
)
def test_the_runtime_gives_the_bits_of_the_reference_after_every_update(
    world: Mapping[str, Any],
    algorithm: A2C | PPO,
    sync_interval: int,
    num_updates: int,
    schedule: Literal["hts", "sync"],
    tmp_path: Path,
) -> None:
    description = experiment(world, algorithm, sync_interval, schedule, num_updates)
    assert_same_bits(train_htsrl(description, tmp_path / "run"), train_reference(description))


@pytest.mark.parametrize("form", PPO_FORMS)
@pytest.mark.parametrize("world", [CARTPOLE, PENDULUM], ids=["cartpole", "pendulum"])
def test_every_correction_of_ppos_lag_gives_the_bits_of_the_reference(
    world: Mapping[str, Any], form: PPOCorrection, tmp_path: Path
) -> None:
    description = experiment(world, PPO_FORMS[form], 8, "hts", num_updates=20)
    assert_same_bits(train_htsrl(description, tmp_path / "run"), train_reference(description))


def test_corrections_of_ppos_lag_part_where_there_is_a_lag_and_nowhere_else(tmp_path: Path) -> None:
    """At the first update of hts, which has none, but for rounding, at the second all are apart."""
    finals = {form: train_reference(experiment(CARTPOLE, PPO_FORMS[form], 8, "hts", 2)).thetas for form in PPO_FORMS}
    flats = {form: [flat_parameters(theta) for theta in thetas] for form, thetas in finals.items()}
    for form in set(PPO_FORMS) - {"recentered"}:  # whose first epoch is wider even there
        torch.testing.assert_close(flats[form][1], flats["none"][1], rtol=1e-3, atol=1e-5)
    ends = [flat[2] for flat in flats.values()]
    assert all((one - other).norm() > 1e-3 for i, one in enumerate(ends) for other in ends[:i])
    run_dirs = [
        train_htsrl(experiment(CARTPOLE, settings, 8, "sync", 5), tmp_path / form)
        for form, settings in PPO_FORMS.items()
    ]
    assert len({read_links(run_dir)[-1].parameters for run_dir in run_dirs}) == 1


@pytest.mark.parametrize(
    ("world", "algorithm", "sync_interval", "lag"),
    [
        pytest.param(CARTPOLE, A2C_DEFAULT, 5, 0, id="cartpole-a2c-0"),
        pytest.param(CARTPOLE, A2C_DEFAULT, 5, 2, id="cartpole-a2c-2"),
        pytest.param(PENDULUM, A2C_UNROLLS, 10, 2, id="pendulum-a2c-unrolls-2"),
        pytest.param(CARTPOLE, PPO_DEFAULT, 8, 0, id="cartpole-ppo-0"),
        pytest.param(PENDULUM, PPO_DEFAULT, 8, 4, id="pendulum-ppo-4"),
    ],
)
def test_under_any_lag_the_runtime_gives_the_bits_of_the_reference_after_every_update(
    world: Mapping[str, Any], algorithm: A2C | PPO, sync_interval: int, lag: int, tmp_path: Path
) -> None:
    description = experiment(world, algorithm, sync_interval, "hts", num_updates=15, lag=lag)
    assert_same_bits(train_htsrl(description, tmp_path / "run"), train_reference(description))


def test_two_lags_part_at_the_update_where_only_one_of_them_acts_with_version_0(tmp_path: Path) -> None:
    """The negative control: up to update 2 both have data of version 0."""
    run_dir = train_htsrl(experiment(CARTPOLE, A2C_DEFAULT, 5, "hts", num_updates=8, lag=3), tmp_path / "run")
    other = train_reference(experiment(CARTPOLE, A2C_DEFAULT, 5, "hts", num_updates=8, lag=2))
    assert first_update_that_differs(run_dir, other) == 3


def test_the_runtime_in_processes_gives_the_bits_of_the_reference_too(tmp_path: Path) -> None:
    description = experiment(PENDULUM, A2C_DEFAULT, 5, "hts")
    run_dir = train_htsrl(description, tmp_path / "run", backend="processes", num_executors=2, num_actors=1)
    assert_same_bits(run_dir, train_reference(description))


def test_a_barrier_at_every_step_changes_no_bit_of_synchronous_training(tmp_path: Path) -> None:
    run_dir = train_htsrl(experiment(CARTPOLE, A2C_DEFAULT, 5, "lockstep"), tmp_path / "run")
    assert_same_bits(run_dir, train_reference(experiment(CARTPOLE, A2C_DEFAULT, 5, "sync")))


@pytest.mark.parametrize("world", [CARTPOLE, PENDULUM], ids=["cartpole", "pendulum"])
def test_under_hts_a_gradient_at_the_current_parameters_gives_other_bits_from_the_second_update_on(
    world: Mapping[str, Any], tmp_path: Path
) -> None:
    """The negative control: update 0 has lag 0, so there both gradients are one."""
    description = experiment(world, A2C_DEFAULT, 5, "hts")
    wrong = train_reference(description, gradient_at="current")
    assert first_update_that_differs(train_htsrl(description, tmp_path / "run"), wrong) == 1


def test_under_sync_a_gradient_at_the_current_parameters_is_the_same_thing(tmp_path: Path) -> None:
    description = experiment(CARTPOLE, A2C_DEFAULT, 5, "sync")
    textbook = train_reference(description, gradient_at="current")
    assert_same_bits(train_htsrl(description, tmp_path / "run"), textbook)


def test_the_two_schedules_part_at_the_second_update(tmp_path: Path) -> None:
    """Both begin with version 0 on rollout 0; then hts acts with version 0 once more."""
    synchronous = train_reference(experiment(CARTPOLE, A2C_DEFAULT, 5, "sync"))
    run_dir = train_htsrl(experiment(CARTPOLE, A2C_DEFAULT, 5, "hts"), tmp_path / "run")
    assert first_update_that_differs(run_dir, synchronous) == 1


def approximate_kl(run_dir: Path) -> list[float]:
    """Of every update, from the policy that its clip is around."""
    return [json.loads(line)["train/approx_kl"] for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("schedule", ["hts", "sync"])
@pytest.mark.parametrize("lag_correction", ["auto", "none"])
def test_ppo_starts_an_update_at_ratio_one_unless_there_is_a_lag(
    lag_correction: Literal["auto", "none"], schedule: Literal["hts", "sync"], tmp_path: Path
) -> None:
    """What the clip of the first epoch is around, in the runtime and in the reference.

    One epoch of one minibatch, so the metrics of an update are those of its first minibatch.
    """
    settings = PPO(
        epochs=1, num_minibatches=1, learning_rate=0.003, anneal_learning_rate=False, lag_correction=lag_correction
    )
    description = experiment(CARTPOLE, settings, 8, schedule, num_updates=20)
    distances = [float((ratios - 1).abs().max()) for ratios in train_reference(description).first_ratios]
    divergences = approximate_kl(train_htsrl(description, tmp_path / "run", log_every_steps=1))
    assert len(distances) == len(divergences) == 20
    num_exact = 1 if schedule == "hts" else 20
    assert max(distances[:num_exact]) < 1e-6
    assert max(map(abs, divergences[:num_exact])) < 1e-7
    assert min(distances[num_exact:], default=1.0) > 1e-3
    assert min(divergences[num_exact:], default=1.0) > 1e-6
