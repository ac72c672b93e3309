"""Observations of several leaves: how they are put side by side, what is above an image, and what is not seen."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from encoded_spaces import images, policy_for, vectors
from gymnasium import spaces
from torch import nn

from htsrl.errors import ConfigError
from htsrl.policies.encoders import Encoder


def test_leaves_are_put_side_by_side_in_the_order_of_their_space() -> None:
    space = spaces.Dict(
        {
            "b": spaces.Tuple((spaces.Discrete(3, start=1), spaces.MultiBinary(2))),
            "a": vectors(2),
            "c": spaces.MultiDiscrete(np.array([[2, 3]]), start=np.array([[0, -1]])),
            "d": images(2),
        }
    )
    policy = policy_for(space, spaces.Discrete(2), hidden_sizes=())
    features = policy.encoder.forward(
        {
            "obs/b/1": torch.tensor([[1, 0]], dtype=torch.int8),
            "obs/b/0": torch.tensor([2]),
            "obs/d": torch.tensor([[255, 51]], dtype=torch.uint8),
            "obs/a": torch.tensor([[0.25, -0.5]]),
            "obs/c": torch.tensor([[[1, -1]]]),
        }
    )
    expected = [*(0.25, -0.5), *(0, 1, 0), *(1, 0), *(0, 1), *(1, 0, 0), *(1.0, 0.2)]
    torch.testing.assert_close(features, torch.tensor([expected]))


@pytest.mark.parametrize(("encoder", "width"), [("auto", 512), ("impala", 256), ("mlp", 44 * 44 * 3)])
def test_an_image_among_others_has_layers_above_that_see_everything(encoder: str, width: int) -> None:
    space = spaces.Dict({"image": images(44, 44, 3), "number": vectors(2)})
    policy = policy_for(space, spaces.Discrete(2), encoder=encoder, hidden_sizes=(9, 7))
    assert isinstance(policy.encoder, Encoder)
    assert policy.encoder.mlp is not None
    widths = [(m.in_features, m.out_features) for m in policy.encoder.mlp.layers if isinstance(m, nn.Linear)]
    assert widths == [(width + 2, 9), (9, 7)]
    assert policy.encoder.num_features == policy.action_head.in_features == 7
    assert (policy.value_encoder is None) == (encoder != "mlp")


@pytest.mark.parametrize(("encoder", "width"), [("auto", 512), ("impala", 256)])
def test_a_lone_image_has_no_layers_above(encoder: str, width: int) -> None:
    for space in (images(44, 44, 3), spaces.Dict({"image": images(44, 44, 3)})):
        policy = policy_for(space, spaces.Discrete(2), encoder=encoder)
        assert isinstance(policy.encoder, Encoder)
        assert policy.encoder.mlp is None
        assert policy.action_head.in_features == width


def test_an_action_mask_is_not_seen() -> None:
    space = spaces.Dict({"x": vectors(2), "action_mask": spaces.MultiBinary(3)})
    policy = policy_for(space, spaces.Discrete(3))
    obs = torch.tensor([[0.5, -0.5]])
    masks = (torch.tensor([[True, True, True]]), torch.tensor([[True, False, True]]))
    _, values = zip(*(policy({"obs/x": obs, "action_mask": mask}) for mask in masks), strict=True)
    assert torch.equal(*values)
    assert isinstance(policy.encoder, Encoder)
    assert len(policy.encoder.parts) == 1


def test_three_axes_of_choices_are_no_image() -> None:
    with pytest.raises(ConfigError, match="encoder=impala needs an image"):
        policy_for(spaces.MultiDiscrete(np.full((2, 2, 2), 3)), spaces.Discrete(2), encoder="impala")
