"""The runtime, with all its roles and slots, against one plain loop: the same bits after every update."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
import xxhash
from reference_acting import ActorCritic
from reference_training import Reference, padded, train_reference
from safetensors.torch import load_file

import htsrl
from htsrl import A2C, PPO, Config, Experiment, Network, Placement
from htsrl.digest import read_links

NUM_ENVS = 4

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


def experiment(
    world: Mapping[str, Any],
    algorithm: A2C | PPO,
    sync_interval: int,
    schedule: Literal["hts", "sync", "lockstep"],
    num_updates: int = 50,
) -> Experiment:
    return Experiment(
        **world,
        algorithm=algorithm,
        network=Network(hidden_sizes=(32, 32)),
        schedule=schedule,
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
        flat = torch.cat([padded(parameter) for parameter in theta.parameters()])
        if link.parameters != xxhash.xxh3_128_hexdigest(flat.numpy().tobytes()):
            return link.update
    return None


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
