"""Networks of the user's own that cannot work, and what is said of them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest
import torch
from test_custom_policies import Plain, WithConstants, experiment_of
from torch import Tensor, nn

from htsrl import Config, ConfigError, Experiment, Network, Placement, train
from htsrl.config.check import check
from htsrl.placements.survey import draw_blueprint


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
