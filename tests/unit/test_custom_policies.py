"""Networks of the user's own: what reaches them, what they may be, and that they are found again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from helpers import assert_same_run, run
from torch import Tensor, nn

from htsrl import A2C, Config, Experiment, Network, Placement, evaluate, train
from htsrl.policies.custom import CustomEncoder
from htsrl.policies.policy import build_policy

VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
CHOICE = spaces.Discrete(2)
NESTED = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (4, 5, 1), np.uint8),
        "inner": spaces.Tuple((spaces.Discrete(3, start=2), spaces.Dict({"far": spaces.Box(-9, 9, (2,), np.float64)}))),
        "sizes": spaces.MultiDiscrete(np.array([[2, 3]]), start=np.array([[1, -1]])),
    }
)


class Plain(nn.Module):
    """Two layers; the base of all that is wrong below."""

    num_features = 6

    def __init__(self, observation_space: spaces.Space[Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(spaces.flatdim(observation_space), 6)

    def forward(self, observation: Tensor) -> Tensor:
        return torch.tanh(self.layer(observation))


class WithConstants(Plain):
    """Constants in buffers, saved with the policy and not; and one drawn from torch's generator."""

    table: Tensor
    drawn: Tensor
    fixed: Tensor

    def __init__(self, observation_space: spaces.Space[Any]) -> None:
        super().__init__(observation_space)
        self.register_buffer("table", torch.linspace(0.5, 1.5, 6))
        self.register_buffer("drawn", torch.randn(6))
        self.register_buffer("fixed", torch.arange(spaces.flatdim(observation_space)).flip(0), persistent=False)

    def forward(self, observation: Tensor) -> Tensor:
        return torch.sin(super().forward(observation[:, self.fixed]) * self.table + self.drawn)


def made_by_a_function(observation_space: spaces.Space[Any]) -> nn.Module:
    network: Any = nn.Sequential(nn.Linear(spaces.flatdim(observation_space), 5), nn.ReLU())
    network.num_features = 5
    return network  # type: ignore[no-any-return]


class Holder:
    """Networks may live inside of classes."""

    Inner = Plain


class Looking(nn.Module):
    """Keeps what it was given."""

    num_features = 1

    def __init__(self, observation_space: spaces.Space[Any]) -> None:
        super().__init__()
        self.space = observation_space
        self.seen: list[Any] = []

    def forward(self, observation: Any) -> Tensor:
        self.seen.append(observation)
        camera: Tensor = observation["camera"]
        return camera.float().mean(dim=(1, 2))


def policy_of(source: Any, space: spaces.Space[Any] = VECTOR, **network: Any) -> Any:
    return build_policy(space, CHOICE, Network(policy=source, **network), seed=1)


def experiment_of(source: Any, **network: Any) -> Experiment:
    return Experiment(
        "htsrl/HiddenCartPole-v0",
        algorithm=A2C(),
        network=Network(policy=source, **network),
        num_envs=4,
        total_steps=60,
    )


@pytest.mark.parametrize(
    ("source", "width"),
    [
        (Plain, 6),
        (made_by_a_function, 5),
        (f"{__name__}:Plain", 6),
        (f"{__name__}:made_by_a_function", 5),
        (f"{__name__}:Holder.Inner", 6),
    ],
    ids=["class", "function", "MODULE:CLASS", "MODULE:FUNCTION", "MODULE:CLASS.CLASS"],
)
@pytest.mark.parametrize("recurrent", ["none", "gru"])
def test_a_network_makes_the_features_and_heads_and_memory_are_ours(source: Any, width: int, recurrent: Any) -> None:
    policy = policy_of(source, recurrent=recurrent, recurrent_size=7)
    assert isinstance(policy.encoder, CustomEncoder)
    assert policy.encoder.num_features == width
    assert policy.value_encoder is None
    assert policy.action_head.in_features == policy.value_head.in_features == (width if recurrent == "none" else 7)


def test_a_network_is_given_the_space_and_observations_in_its_structure() -> None:
    policy = policy_of(Looking, NESTED)
    assert policy.encoder.network.space == NESTED
    policy.encoder.network.seen.clear()
    leaves = {
        "obs/camera": torch.zeros(2, 4, 5, 1, dtype=torch.uint8),
        "obs/inner/0": torch.tensor([2, 4]),
        "obs/inner/1/far": torch.zeros(2, 2, dtype=torch.float64),
        "obs/sizes": torch.ones(2, 1, 2, dtype=torch.int64),
    }
    policy(leaves)
    (seen,) = policy.encoder.network.seen
    assert list(seen) == ["camera", "inner", "sizes"]
    assert seen["camera"] is leaves["obs/camera"]
    assert type(seen["inner"]) is tuple
    assert seen["inner"][0] is leaves["obs/inner/0"]
    assert seen["inner"][1] == {"far": leaves["obs/inner/1/far"]}
    assert seen["sizes"] is leaves["obs/sizes"]


def test_a_network_is_not_shown_the_action_mask() -> None:
    space = spaces.Dict({**NESTED.spaces, "action_mask": spaces.MultiBinary(2)})
    policy = policy_of(Looking, space)
    assert all("action_mask" not in seen for seen in policy.encoder.network.seen)
    assert policy.encoder.network.seen


def test_what_a_network_is_tried_with_lies_in_its_space() -> None:
    (seen, *_) = policy_of(Looking, NESTED).encoder.network.seen
    for row in range(2):
        observation = {
            "camera": seen["camera"][row].numpy(),
            "inner": (int(seen["inner"][0][row]), {"far": seen["inner"][1]["far"][row].numpy()}),
            "sizes": seen["sizes"][row].numpy(),
        }
        assert NESTED.contains(observation)


def test_normalised_observations_are_normalised_before_the_network_sees_them() -> None:
    policy = policy_of(Plain, normalize_observations=True)
    policy.observation_scales.take_in({"obs": torch.tensor([[2.0, 4.0, 6.0], [4.0, 8.0, 12.0]])})
    seen: list[Tensor] = []
    policy.encoder.network.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    policy({"obs": torch.tensor([[4.0, 4.0, 9.0]])})
    torch.testing.assert_close(seen[0], torch.tensor([[1.0, -1.0, 0.0]]))


def test_a_network_with_constants_has_the_same_digest_wherever_it_runs(tmp_path: Path) -> None:
    """Its constants are not sent to workers: each makes them again, from the seed."""
    inline = run(experiment_of(WithConstants), num_executors=1, num_actors=0)
    assert_same_run(run(experiment_of(WithConstants), num_executors=2, num_actors=3), inline)
    assert_same_run(run(experiment_of(f"{__name__}:WithConstants"), num_executors=3, num_actors=1), inline)
    processes = run(experiment_of(WithConstants), backend="processes", num_executors=2, num_actors=1)
    assert_same_run(processes, inline)


def test_a_saved_network_is_found_again_by_its_name(tmp_path: Path) -> None:
    placement = Placement("inline", run_dir=tmp_path / "run", tensorboard=False, progress="off")
    train(Config(experiment_of(WithConstants, recurrent="lstm", recurrent_size=4), placement))
    assert f'"policy": "{__name__}:WithConstants"' in (tmp_path / "run" / "config.json").read_text()
    assert evaluate(tmp_path / "run", episodes=2).returns


class Tied(Plain):
    """Uses one parameter in two places."""

    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight

    def forward(self, observation: Tensor) -> Tensor:
        features: Tensor = self.second(torch.tanh(self.first(super().forward(observation))))
        return features


def test_a_network_may_use_a_parameter_twice(tmp_path: Path) -> None:
    placement = Placement("inline", run_dir=tmp_path / "run", tensorboard=False, progress="off")
    train(Config(experiment_of(Tied), placement))
    assert evaluate(tmp_path / "run", episodes=1).returns
