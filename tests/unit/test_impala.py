"""IMPALA's network: the layers and sizes of the paper, for images of any size and either order of their axes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from encoded_spaces import images, num_parameters, policy_for, random_images
from gymnasium import spaces
from torch import nn

from htsrl.policies.images import ImpalaCnn
from htsrl.spaces import observation_leaves


def impala_for(observations: spaces.Space[Any]) -> ImpalaCnn:
    return ImpalaCnn(observation_leaves(observations)["obs"])


def test_impala_has_as_many_parameters_as_the_papers_network() -> None:
    """Espeholt et al. 2018, figure 3 right: 15 convolutions of 3x3 in three stages of 16, 32 and 32 channels.

    Each stage is a convolution, a pooling that halves the image, and two residual blocks of two convolutions; then a
    dense layer of 256. Of 84x84x4: 42x42x16, 21x21x32, 11x11x32.
    """

    def convolution(channels_in: int, channels: int) -> int:
        return 3 * 3 * channels_in * channels + channels

    stages = sum(convolution(a, b) + 4 * convolution(b, b) for a, b in ((4, 16), (16, 32), (32, 32)))
    dense = 11 * 11 * 32 * 256 + 256
    assert stages == 97_744
    assert stages + dense == 1_089_232
    impala = impala_for(images(4, 84, 84))
    assert num_parameters(impala) == 1_089_232
    convolutions = [m for m in impala.modules() if isinstance(m, nn.Conv2d)]
    assert len(convolutions) == 15
    assert {(m.kernel_size, m.stride, m.padding) for m in convolutions} == {((3, 3), (1, 1), (1, 1))}
    policy = policy_for(images(4, 84, 84), spaces.Discrete(6), encoder="impala")
    assert num_parameters(policy) == 1_089_232 + (256 * 6 + 6) + (256 + 1)


def test_every_stage_of_impala_halves_the_image() -> None:
    impala = impala_for(images(84, 84, 4))
    seen: list[tuple[int, ...]] = []
    for stage in list(impala.convolutions)[:3]:
        stage.register_forward_hook(lambda module, inputs, output: seen.append(tuple(output.shape)))
    assert impala(random_images(2, 84, 84, 4)).shape == (2, 256)
    assert seen == [(2, 16, 42, 42), (2, 32, 21, 21), (2, 32, 11, 11)]


def test_a_stage_of_impala_is_what_the_paper_draws() -> None:
    """Convolution, pooling, then twice: x + conv(relu(conv(relu(x))))."""
    stage = next(iter(impala_for(images(4, 8, 8)).convolutions))
    weights = [m for m in stage.modules() if isinstance(m, nn.Conv2d)]
    x = torch.rand(2, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    expected = nn.functional.max_pool2d(weights[0](x), 3, stride=2, padding=1)
    for first, second in (weights[1:3], weights[3:5]):
        expected = expected + second(torch.relu(first(torch.relu(expected))))
    torch.testing.assert_close(stage(x), expected)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 7, 7), (7, 7, 3), (12, 12, 1), (5, 40, 3)])
def test_impala_sees_images_of_any_size(shape: tuple[int, ...]) -> None:
    policy = policy_for(images(*shape), spaces.Discrete(2), encoder="impala")
    distribution, values = policy({"obs": random_images(3, *shape)})
    assert values.isfinite().all()
    assert distribution.entropy().shape == (3,)


def test_impala_gives_channels_first_and_last_equal_features() -> None:
    first, last = impala_for(images(3, 20, 16)), impala_for(images(20, 16, 3))
    last.load_state_dict(first.state_dict())
    obs = random_images(5, 3, 20, 16)
    with torch.inference_mode():
        torch.testing.assert_close(first(obs), last(obs.permute(0, 2, 3, 1).contiguous()))
        assert first(obs).std() > 0
