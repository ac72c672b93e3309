"""Networks of the user's own: what reaches them, what they may be, and what is said of those that cannot work."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest
import torch
from gymnasium import spaces
from helpers import assert_same_run, run
from torch import Tensor, nn

from htsrl import A2C, Config, ConfigError, Experiment, Network, Placement, evaluate, train
from htsrl.config_check import check
from htsrl.policies.custom import CustomEncoder
from htsrl.policies.policy import build_policy
from htsrl.survey import draw_blueprint

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


# --- what works ------------------------------------------------------------------------------------------------------


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
@pytest.mark.parametrize("memory", ["none", "gru"])
def test_a_network_makes_the_features_and_heads_and_memory_are_ours(source: Any, width: int, memory: Any) -> None:
    policy = policy_of(source, memory=memory, memory_size=7)
    assert isinstance(policy.encoder, CustomEncoder)
    assert policy.encoder.num_features == width
    assert policy.value_encoder is None
    assert policy.action_head.in_features == policy.value_head.in_features == (width if memory == "none" else 7)


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
    train(Config(experiment_of(WithConstants, memory="lstm", memory_size=4), placement))
    assert f'"policy": "{__name__}:WithConstants"' in (tmp_path / "run" / "config.json").read_text()
    assert evaluate(tmp_path / "run", episodes=2).returns


# --- what does not ---------------------------------------------------------------------------------------------------


class Wrong(Plain):
    """A network with something of its own."""

    extra: nn.Module

    def forward(self, observation: Tensor) -> Tensor:
        features: Tensor = self.extra(super().forward(observation))
        return features


class BatchNorm(Wrong):
    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.extra = nn.Sequential(nn.BatchNorm1d(6))


class LazyBatchNorm(Wrong):
    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.extra = nn.LazyBatchNorm1d()


class Dropout(Wrong):
    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.extra = nn.Dropout(0.25)


class AlphaDropout(Wrong):
    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.extra = nn.AlphaDropout(0.25)


class NoDropout(Wrong):
    """Dropout of nothing."""

    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.extra = nn.Sequential(nn.Dropout(0.0), nn.LayerNorm(6), nn.Unflatten(1, (6, 1)), nn.GroupNorm(2, 6))

    def forward(self, observation: Tensor) -> Tensor:
        return super().forward(observation).flatten(1)


class FunctionalDropout(Plain):
    def forward(self, observation: Tensor) -> Tensor:
        return nn.functional.dropout(super().forward(observation), 0.5)


class Noisy(Plain):
    def forward(self, observation: Tensor) -> Tensor:
        features = super().forward(observation)
        return features + torch.randn_like(features)


class BatchMean(Plain):
    def forward(self, observation: Tensor) -> Tensor:
        features = super().forward(observation)
        return features - features.mean(dim=0)


class Counting(Plain):
    calls: Tensor

    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, observation: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(observation)


class RunningMean(Plain):
    """Its buffer stays as it was when it is shown nothing but zeros."""

    mean: Tensor

    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.register_buffer("mean", torch.zeros(2))

    def forward(self, observation: Tensor) -> Tensor:
        self.mean.mul_(0.99).add_(0.01 * observation.detach().mean(dim=0))
        return super().forward(observation - self.mean)


class Float64(Plain):
    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.layer = self.layer.double()


class Float64Features(Plain):
    def forward(self, observation: Tensor) -> Tensor:
        return super().forward(observation).double()


class TooWide(Plain):
    num_features = 7


class NoWidth(Plain):
    num_features = None  # type: ignore[assignment]


class ZeroWidth(Plain):
    num_features = 0


class FlatOutput(Plain):
    def forward(self, observation: Tensor) -> Tensor:
        return super().forward(observation).flatten()


class TwoOutputs(Plain):
    def forward(self, observation: Tensor) -> Any:
        return super().forward(observation), None


class Raising(Plain):
    def forward(self, observation: Tensor) -> Tensor:
        raise KeyError("velocity")


class Unmakeable(Plain):
    def __init__(self, space: Any) -> None:
        raise AttributeError("no such space")


class NumpyWeights(Plain):
    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.layer.weight.data = torch.from_numpy(np.random.default_rng().normal(size=(6, 2)).astype(np.float32))


class NumpyBuffer(WithConstants):
    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.drawn = torch.from_numpy(np.random.default_rng().normal(size=6).astype(np.float32))


def no_module(space: Any) -> Any:
    return lambda observation: observation


def not_at_the_top() -> Any:
    class Local(Plain):
        pass

    return Local


CONSTANT = 3

REFUSED = [
    (BatchNorm, r"has batch normalisation \(extra.0: BatchNorm1d\).*use nn.LayerNorm or nn.GroupNorm"),
    (LazyBatchNorm, "has batch normalisation"),
    (Dropout, r"has dropout \(extra, p=0.25\).*leave it out"),
    (AlphaDropout, "has dropout"),
    (FunctionalDropout, "makes other features of the same observations"),
    (Noisy, "makes other features of the same observations"),
    (BatchMean, "gives a row other values beside other rows"),
    (Counting, "changes its buffers when it is called"),
    (RunningMean, "changes its buffers when it is called|gives a row other values"),
    (Float64, r"has a parameter of torch.float64 \(layer.weight\); use torch.float32"),
    (Float64Features, r"made torch.float64 \(2, 6\) of 2 rows; let them agree"),
    (TooWide, r"num_features=7, but made torch.float32 \(2, 6\) of 2 rows"),
    (NoWidth, "has num_features=None; it must be callable"),
    (ZeroWidth, "has num_features=0; it must be callable"),
    (FlatOutput, r"made torch.float32 \(12,\) of 2 rows"),
    (TwoOutputs, "made tuple of 2 rows"),
    (Raising, "failed on 2 rows of observations .*: KeyError: 'velocity'"),
    (Unmakeable, "could not be made: AttributeError: no such space"),
    (no_module, "policy=no_module made a function; it must be callable"),
    (NumpyWeights, "layer.weight of the policy begins with other numbers each time that it is made"),
    (NumpyBuffer, "drawn of the policy begins with other numbers each time that it is made"),
    ("Plain", "policy='Plain' must be MODULE:CLASS, such as"),
    (":Plain", "must be MODULE:CLASS"),
    ("no_such_module_anywhere:Plain", "policy=no_such_module_anywhere:Plain cannot be imported: ModuleNotFoundError"),
    (f"{__name__}:Missing", "cannot be imported: AttributeError"),
    (f"{__name__}:CONSTANT", "is a int, which cannot be called"),
    (lambda space: Plain(space), "has no name under which evaluations and resumed runs could import it"),
    (functools.partial(Plain), "has no name under which"),
    (not_at_the_top(), "has no name under which"),
]


@pytest.mark.parametrize(("source", "message"), REFUSED, ids=lambda value: getattr(value, "__name__", None))
def test_a_network_that_cannot_work_is_one_config_error_before_anything_starts(
    source: Any, message: str, tmp_path: Path
) -> None:
    children_before = set(psutil.Process().children(recursive=True))
    with pytest.raises(ConfigError, match=message):
        train(Config(experiment_of(source), Placement(run_dir=tmp_path / "run", progress="off")))
    assert list(tmp_path.iterdir()) == []
    assert set(psutil.Process().children(recursive=True)) <= children_before


def test_layer_and_group_normalisation_and_a_dropout_of_nothing_are_fine() -> None:
    assert draw_blueprint(Config(experiment_of(NoDropout), Placement("inline"))).shape.sizes


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (Network("impala", policy=Plain), "takes the place of encoder=impala; give one of them"),
        (Network(policy=Plain, separate_value=True), "separate_value=True does not go with policy="),
        (
            Network(policy=Plain, hidden_sizes=(8,)),
            r"hidden_sizes=\(8,\) is about the encoder that policy=.*Plain takes",
        ),
        (Network(policy=Plain, activation="relu"), "activation=relu is about the encoder that policy=.*Plain takes"),
        (Network(policy=3), "policy=3 must be text"),  # type: ignore[arg-type]
    ],
)
def test_a_network_goes_with_nothing_that_it_replaces(network: Network, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(Config(Experiment("CartPole-v1", network=network)))


class HiddenNumpy(WithConstants):
    """Draws a constant that is not saved with the policy, so that no look at what is saved can tell."""

    hidden: Tensor

    def __init__(self, space: Any) -> None:
        super().__init__(space)
        drawn = torch.from_numpy(np.random.default_rng().normal(size=6).astype(np.float32))
        self.register_buffer("hidden", drawn, persistent=False)

    def forward(self, observation: Tensor) -> Tensor:
        return super().forward(observation) + self.hidden


def test_a_constant_that_is_not_saved_must_repeat_as_well() -> None:
    with pytest.raises(ConfigError, match="begins with other numbers each time"):
        draw_blueprint(Config(experiment_of(HiddenNumpy), Placement("inline")))


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
