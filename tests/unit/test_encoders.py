"""Encoders and the policy around them: shapes, sizes, initialisation, and what becomes of an observation."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import pytest
import torch
from encoded_spaces import images, num_parameters, policy_for, random_images, vectors
from gymnasium import spaces
from torch import Tensor, nn

from htsrl.errors import ConfigError
from htsrl.policies.distributions import Categorical, DiagonalGaussian
from htsrl.policies.encoders import Encoder, Flat
from htsrl.policies.images import ImpalaCnn, NatureCnn
from htsrl.spaces import observation_leaves

NUM_FOOTBALL_ACTIONS = 19

Cnn = TypeVar("Cnn", NatureCnn, ImpalaCnn)
BOTH_CNNS = pytest.mark.parametrize("kind", [NatureCnn, ImpalaCnn])


def cnn_for(observations: spaces.Space[Any], kind: type[Cnn]) -> Cnn:
    return kind(observation_leaves(observations)["obs"])


def test_the_nature_cnn_has_the_published_layers() -> None:
    """Mnih et al. 2015, on 84x84x4: 20x20x32, 9x9x64, 7x7x64, 512."""
    cnn = cnn_for(images(4, 84, 84), NatureCnn)
    shapes = {name: tuple(parameter.shape) for name, parameter in cnn.named_parameters()}
    assert shapes == {
        "convolutions.0.weight": (32, 4, 8, 8),
        "convolutions.0.bias": (32,),
        "convolutions.2.weight": (64, 32, 4, 4),
        "convolutions.2.bias": (64,),
        "convolutions.4.weight": (64, 64, 3, 3),
        "convolutions.4.bias": (64,),
        "dense.0.weight": (512, 7 * 7 * 64),
        "dense.0.bias": (512,),
    }
    assert isinstance(cnn, NatureCnn)
    shown = random_images(2, 4, 84, 84)
    assert cnn(shown).shape == (2, 512)
    assert [tuple(x.shape) for x in cnn.activations(shown)] == [(2, 20, 20, 32), (2, 9, 9, 64), (2, 7, 7, 64), (2, 512)]
    assert [m.stride for m in cnn.convolutions if isinstance(m, nn.Conv2d)] == [(4, 4), (2, 2), (1, 1)]


def test_the_atari_policy_has_as_many_parameters_as_its_layers_add_up_to() -> None:
    convolutions = (4 * 8 * 8 * 32 + 32) + (32 * 4 * 4 * 64 + 64) + (64 * 3 * 3 * 64 + 64)
    dense = 7 * 7 * 64 * 512 + 512
    heads = (512 * 19 + 19) + (512 * 1 + 1)
    assert convolutions + dense + heads == 1_694_388
    assert num_parameters(policy_for(images(4, 84, 84), spaces.Discrete(19))) == 1_694_388
    assert num_parameters(policy_for(images(4, 84, 84), spaces.Discrete(18))) == 1_694_388 - 513


def test_the_football_policy_has_as_many_parameters_as_the_papers() -> None:
    """72x96x16: 17x23x32, 7x10x64, 5x8x64, 512."""
    convolutions = (16 * 8 * 8 * 32 + 32) + (32 * 4 * 4 * 64 + 64) + (64 * 3 * 3 * 64 + 64)
    dense = 5 * 8 * 64 * 512 + 512
    heads = (512 * 19 + 19) + (512 * 1 + 1)
    assert convolutions + dense + heads == 1_424_052
    policy = policy_for(images(72, 96, 16), spaces.Discrete(NUM_FOOTBALL_ACTIONS))
    assert policy.value_encoder is None
    assert num_parameters(policy) == 1_424_052


@pytest.mark.parametrize(("height", "width", "channels"), [(84, 84, 4), (72, 96, 16), (36, 36, 1)])
def test_channels_first_and_channels_last_images_give_equal_features(height: int, width: int, channels: int) -> None:
    first, last = (
        cnn_for(images(channels, height, width), NatureCnn),
        cnn_for(images(height, width, channels), NatureCnn),
    )
    last.load_state_dict(first.state_dict())
    obs = random_images(5, channels, height, width)
    with torch.inference_mode():
        assert torch.equal(first(obs), last(obs.permute(0, 2, 3, 1).contiguous()))
        assert first(obs).abs().max() > 0


@BOTH_CNNS
def test_images_reach_the_convolutions_in_channels_last_order(kind: type[Cnn]) -> None:
    cnn = cnn_for(images(4, 84, 84), kind)
    seen: list[Tensor] = []
    cnn.images.register_forward_hook(lambda module, inputs, output: seen.append(output))
    cnn(random_images(2, 4, 84, 84))
    assert seen[0].is_contiguous(memory_format=torch.channels_last)


@BOTH_CNNS
def test_bytes_are_seen_from_zero_to_one_and_floats_as_they_are(kind: type[Cnn]) -> None:
    of_bytes, of_floats = cnn_for(images(4, 44, 44), kind), cnn_for(vectors(4, 44, 44), kind)
    of_floats.load_state_dict(of_bytes.state_dict())
    obs = random_images(2, 4, 44, 44)
    torch.testing.assert_close(of_bytes(obs), of_floats(obs.float() / 255), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(35, 84, 3), (84, 35, 3), (3, 35, 35), (1, 84, 20)])
def test_images_too_small_for_the_nature_cnn_are_seen_by_another_unless_it_was_asked_for(
    shape: tuple[int, ...],
) -> None:
    encoder: Any = policy_for(images(*shape), spaces.Discrete(2)).encoder
    [part] = encoder.parts
    assert isinstance(part, ImpalaCnn)
    with pytest.raises(ConfigError, match="too small for the Nature CNN, which needs 36x36"):
        policy_for(images(*shape), spaces.Discrete(2), encoder="nature_cnn")


def test_the_smallest_image_that_is_not_refused_works() -> None:
    assert cnn_for(images(36, 36, 3), NatureCnn)(random_images(1, 36, 36, 3)).shape == (1, 512)


@pytest.mark.parametrize("observations", [vectors(4), images(84, 84), spaces.Discrete(5)], ids=["1d", "2d", "discrete"])
def test_the_nature_cnn_refuses_observations_that_are_no_images_in_words(observations: spaces.Space[Any]) -> None:
    with pytest.raises(ConfigError, match="nature_cnn needs an image"):
        policy_for(observations, spaces.Discrete(2), encoder="nature_cnn")


def assert_orthogonal(layer: nn.Module, gain: float) -> None:
    """Rows (or columns, if there are fewer) have length `gain` and are at right angles; the bias is zero."""
    assert isinstance(layer, nn.Linear | nn.Conv2d)
    assert layer.bias is not None
    weight = layer.weight.detach().flatten(1).double()
    short = weight @ weight.T if weight.shape[0] <= weight.shape[1] else weight.T @ weight
    torch.testing.assert_close(short, gain**2 * torch.eye(len(short)).double(), rtol=0, atol=1e-5 * max(gain, 0.1))
    assert not layer.bias.detach().any()


@pytest.mark.parametrize(
    "observations", [vectors(5), images(3, 44, 44), spaces.Discrete(6)], ids=["vector", "image", "discrete"]
)
@pytest.mark.parametrize("actions", [spaces.Discrete(3), vectors(2)], ids=["choice", "normal"])
def test_every_layer_starts_orthogonal_with_the_gain_of_its_place(
    observations: spaces.Space[Any], actions: spaces.Space[Any]
) -> None:
    """sqrt 2 in the encoders, 0.01 before the actions (nearly uniform at first), 1 before the value."""
    policy = policy_for(observations, actions)
    layers = {name: m for name, m in policy.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)}
    heads = {"action_head": 0.01, "value_head": 1.0}
    assert len(layers) == (6 if policy.value_encoder is None else 2 * 2 + 2)
    for name, layer in layers.items():
        assert_orthogonal(layer, heads.get(name, math.sqrt(2)))


def test_one_hot_encoding_begins_at_the_start_of_the_space() -> None:
    encoder = Flat(observation_leaves(spaces.Discrete(4, start=-2))["obs"])
    assert encoder(torch.tensor([-2, 0, 1])).tolist() == [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    assert encoder.num_features == 4


def test_arrays_are_flattened_and_bytes_scaled() -> None:
    plain = Flat(observation_leaves(vectors(2, 2))["obs"])
    assert plain(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])).tolist() == [[1, 2, 3, 4]]
    scaled = Flat(observation_leaves(images(2))["obs"])
    torch.testing.assert_close(scaled(torch.tensor([[0, 255]], dtype=torch.uint8)), torch.tensor([[0.0, 1.0]]))


def test_an_observation_may_be_a_single_number() -> None:
    encoder = Flat(observation_leaves(vectors())["obs"])
    assert encoder(torch.tensor([1.0, 2.0])).tolist() == [[1.0], [2.0]]


@pytest.mark.parametrize(("activation", "kind"), [("tanh", nn.Tanh), ("relu", nn.ReLU)])
def test_the_mlp_has_the_layers_it_was_asked_for(activation: str, kind: type[nn.Module]) -> None:
    policy = policy_for(vectors(5), spaces.Discrete(3), hidden_sizes=(7, 9), activation=activation)
    assert isinstance(policy.encoder, Encoder)
    assert policy.encoder.mlp is not None
    layers = policy.encoder.mlp.layers
    widths = [(m.in_features, m.out_features) for m in layers if isinstance(m, nn.Linear)]
    assert widths == [(5, 7), (7, 9)]
    assert [isinstance(m, kind) for m in layers] == [False, True, False, True]
    assert policy.action_head.in_features == policy.value_head.in_features == 9


@pytest.mark.parametrize(
    ("observations", "network", "encoder", "has_value_encoder"),
    [
        (vectors(5), {}, Flat, True),
        (vectors(5), {"separate_value": False}, Flat, False),
        (images(3, 44, 44), {}, NatureCnn, False),
        (images(3, 44, 44), {"separate_value": True}, NatureCnn, True),
        (images(3, 44, 44), {"encoder": "mlp"}, Flat, True),
        (vectors(3, 44, 44), {}, Flat, True),
    ],
)
def test_auto_takes_the_cnn_for_images_and_shares_it_with_the_value(
    observations: spaces.Space[Any], network: dict[str, Any], encoder: type[nn.Module], has_value_encoder: bool
) -> None:
    policy = policy_for(observations, spaces.Discrete(2), **network)
    assert isinstance(policy.encoder, Encoder)
    assert isinstance(policy.encoder.parts[0], encoder)
    assert (policy.value_encoder is not None) == has_value_encoder


def test_a_separate_value_encoder_is_not_a_copy_of_the_policys() -> None:
    policy = policy_for(vectors(5), spaces.Discrete(2))
    assert isinstance(policy.encoder, Encoder)
    assert isinstance(policy.value_encoder, Encoder)
    first, second = (next(encoder.parameters()) for encoder in (policy.encoder, policy.value_encoder))
    assert not torch.equal(first, second)


def test_continuous_actions_have_a_free_deviation_per_dimension() -> None:
    policy = policy_for(vectors(5), vectors(2, 3), initial_log_std=-0.5)
    distribution, values = policy({"obs": torch.zeros(4, 5)})
    assert isinstance(distribution, DiagonalGaussian)
    assert distribution.mean.shape == (4, 6)
    assert torch.equal(distribution.log_std, torch.full((6,), -0.5))
    assert policy.log_std.requires_grad
    assert values.shape == (4,)


def test_discrete_actions_start_nearly_uniform() -> None:
    policy = policy_for(vectors(5), spaces.Discrete(4))
    distribution, _ = policy({"obs": torch.randn(8, 5, generator=torch.Generator().manual_seed(0))})
    assert isinstance(distribution, Categorical)
    assert (distribution.log_probs.exp() - 0.25).abs().max() < 0.01


def test_what_an_actor_answers_belongs_together() -> None:
    policy = policy_for(vectors(5), spaces.Discrete(4))
    obs, noise = torch.randn(8, 5), torch.randn(8, 4)
    with torch.no_grad():
        decision, (distribution, values) = policy.decide({"obs": obs}, noise), policy({"obs": obs})
        assert torch.equal(decision.actions, distribution.sample(noise))
        assert torch.equal(decision.log_probs, distribution.log_prob(decision.actions))
        assert torch.equal(decision.values, values)


def test_a_policy_is_a_function_of_its_seed_and_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    first, again, other = (policy_for(vectors(5), spaces.Discrete(2), seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(x, y) for x, y in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.action_head.weight, other.action_head.weight)
