"""Gradients from activations that were kept when acting: the same numbers, without the forward pass."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from htsrl import A2C, PPO, Config, Experiment, Network, Placement
from htsrl.placements import surveyed
from htsrl.placements.survey import draw_blueprint
from htsrl.policies import activations
from htsrl.policies.images import NatureCnn
from htsrl.policies.policy import Past, Policy, build_policy
from htsrl.policies.reference_probe import example_inputs

NUM_ROWS = 8
IMAGES = spaces.Box(0, 255, (4, 42, 40), np.uint8)
SPACES: dict[str, spaces.Space[Any]] = {
    "channels_first": IMAGES,
    "channels_last": spaces.Box(0, 255, (42, 40, 3), np.uint8),
    "floats": spaces.Box(0.0, 1.0, (3, 40, 40), np.float32),
    "two_cameras_and_a_vector": spaces.Dict(
        {"left": IMAGES, "right": IMAGES, "speed": spaces.Box(-1.0, 1.0, (3,), np.float32)}
    ),
}
NATURE = Network(encoder="nature_cnn")

pytestmark = pytest.mark.usefixtures("one_thread")


def policy_for(space: str, network: Network = NATURE) -> Policy:
    return build_policy(SPACES[space], spaces.Discrete(3), network, seed=0)


def kept_by(policy: Policy, observations: dict[str, Tensor]) -> dict[str, Tensor]:
    """As the learner finds them, out of inference's hands."""
    with torch.inference_mode():
        decision = policy.decide(observations, torch.zeros(NUM_ROWS, 3), keep_activations=True)
    assert decision.activations.keys() == policy.activation_shapes.keys()
    for name, kept in decision.activations.items():
        assert kept.shape == (NUM_ROWS, *policy.activation_shapes[name])
    return {name: torch.from_numpy(kept.numpy().copy()) for name, kept in decision.activations.items()}


def gradients_of(policy: Policy, observations: dict[str, Tensor], past: Past | None = None) -> list[Tensor]:
    policy.zero_grad()
    distribution, values = policy(observations, past)
    actions = torch.arange(NUM_ROWS) % 3
    (distribution.log_prob(actions).sum() + (values - 1).square().sum()).backward()
    gradients = [parameter.grad for parameter in policy.parameters()]
    return [gradient.clone() for gradient in gradients if gradient is not None]


@pytest.mark.parametrize("space", ["channels_first", "channels_last", "floats"])
def test_layers_have_the_gradient_that_autograd_has_of_torchs_own_modules_to_the_bit(space: str) -> None:
    policy = policy_for(space)
    (cnn,) = (module for module in policy.modules() if isinstance(module, NatureCnn))
    (observation,) = example_inputs(policy.interface, NUM_ROWS).values()
    ours, theirs = (
        torch.autograd.grad(features.square().sum(), list(cnn.parameters()))
        for features in (cnn(observation), cnn.dense(cnn.convolutions(cnn.images(observation))))
    )
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("space", SPACES)
def test_a_gradient_from_what_was_kept_is_that_of_a_forward_pass(space: str) -> None:
    policy = policy_for(space)
    observations = example_inputs(policy.interface, NUM_ROWS)
    computed = gradients_of(policy, observations)
    recalled = gradients_of(policy, observations | kept_by(policy, observations))
    assert len(computed) == len(list(policy.parameters()))
    for ours, theirs in zip(recalled, computed, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_memory_behind_the_images_learns_the_same() -> None:
    policy = policy_for("channels_first", Network(encoder="nature_cnn", recurrent="lstm", recurrent_size=8))
    observations = example_inputs(policy.interface, NUM_ROWS)
    past = Past(torch.zeros(2, policy.state_size), torch.zeros(NUM_ROWS // 2, 2, dtype=torch.bool))
    with torch.inference_mode():
        acting = observations | {"memory": torch.zeros(NUM_ROWS, policy.state_size)}
        kept = policy.decide(acting, torch.zeros(NUM_ROWS, 3), keep_activations=True).activations
    kept = {name: torch.from_numpy(x.numpy().copy()) for name, x in kept.items()}
    for ours, theirs in zip(
        gradients_of(policy, observations | kept, past), gradients_of(policy, observations, past), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_what_was_kept_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policy_for("channels_first")
    observations = example_inputs(policy.interface, NUM_ROWS)
    kept = kept_by(policy, observations)

    def compute(*_: Any) -> Tensor:
        raise AssertionError("computed")

    monkeypatch.setattr(activations, "conv2d", compute)
    monkeypatch.setattr(activations, "linear", compute)
    with pytest.raises(AssertionError, match="computed"):
        policy(observations)
    gradients_of(policy, observations | kept)


def test_nothing_is_kept_unless_it_is_asked_for() -> None:
    policy = policy_for("channels_first")
    observations = example_inputs(policy.interface, NUM_ROWS)
    assert policy.decide(observations, torch.zeros(NUM_ROWS, 3)).activations == {}


@pytest.mark.parametrize(
    "network", [Network(encoder="mlp"), Network(encoder="impala"), Network(encoder="nature_cnn", separate_value=True)]
)
def test_networks_that_keep_nothing_say_so(network: Network) -> None:
    assert policy_for("channels_first", network).activation_shapes == {}


class Camera(gymnasium.Env[Any, Any]):
    """Shows the same image for ever."""

    observation_space = IMAGES
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(IMAGES.shape, np.uint8), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(IMAGES.shape, np.uint8), 0.0, False, False, {}


def keeps(algorithm: A2C | PPO, schedule: Literal["hts", "sync", "lockstep", "async"]) -> bool:
    experiment = Experiment(Camera, algorithm=algorithm, schedule=schedule, num_envs=4, sync_interval=8)
    return bool(draw_blueprint(Config(experiment, Placement("inline"))).trajectory.activation_names)


def test_only_the_delayed_gradient_is_taken_from_what_was_kept() -> None:
    assert keeps(A2C(), "hts")
    assert keeps(A2C(), "sync")
    assert keeps(A2C(), "lockstep")
    assert not keeps(A2C(lag_correction="vtrace"), "hts")
    assert not keeps(A2C(lag_correction="importance"), "hts")
    assert not keeps(A2C(lag_correction="none"), "hts")
    assert not keeps(A2C(), "async")
    assert not keeps(PPO(), "hts")


def test_what_takes_too_much_memory_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policy_for("channels_first")
    numbers = sum(int(np.prod(shape)) for shape in policy.activation_shapes.values())
    num_bytes = 4 * numbers * 4 * 8 * 2  # of floats, in columns, steps and storages
    monkeypatch.setattr(surveyed, "MAX_KEPT_BYTES", num_bytes)
    assert keeps(A2C(), "hts")
    monkeypatch.setattr(surveyed, "MAX_KEPT_BYTES", num_bytes - 1)
    assert not keeps(A2C(), "hts")
