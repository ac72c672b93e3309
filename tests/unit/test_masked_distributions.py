"""What an action mask forbids has no probability, and nothing is learned from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from test_masks import FOUR, SEEN
from torch import Tensor

from htsrl import Network
from htsrl.policies.distributions import Categorical, Choices, DiagonalGaussian, Distribution, Hybrid, masked
from htsrl.policies.policy import build_policy
from htsrl.seeding import ActionNoise
from htsrl.spaces.observations import MASK_KEY

NUM_DRAWS = 40_000
LOGITS = [0.3, 4.0, -1.0, 0.0, 2.0, 0.5]


def hybrid(outputs: Tensor, mask: Tensor | None) -> Distribution:
    """A choice of 4, one of 2, and a number."""
    choices = Choices(masked(outputs[:, :6], mask), (4, 2))
    return Hybrid(choices, DiagonalGaussian(outputs[:, 6:], torch.zeros(1)), 2, 6)


def test_what_is_forbidden_is_never_sampled_and_the_rest_as_often_as_before_among_themselves() -> None:
    """Chi-square at 0.1 %: 13.82 with two degrees of freedom."""
    mask = torch.tensor([True, False, True, True, False, True])
    outputs = torch.tensor([*LOGITS, 0.0]).expand(NUM_DRAWS, -1)
    noise = torch.from_numpy(ActionNoise(gumbel=6, normal=1).draw(0, env=0, first_step=0, num_steps=NUM_DRAWS))
    actions = hybrid(outputs, mask.expand(NUM_DRAWS, -1)).sample(noise)
    counts = np.bincount(actions[:, 0].long().numpy(), minlength=4)
    assert counts[1] == 0
    assert (actions[:, 1] == 1).all()
    expected = torch.tensor([0.3, -1.0, 0.0]).softmax(0).numpy() * NUM_DRAWS
    assert ((counts[[0, 2, 3]] - expected) ** 2 / expected).sum() < 13.82


@pytest.mark.parametrize("logit", [0.0, 50.0, 1e4])
def test_what_is_forbidden_is_not_the_mode_and_has_no_probability_however_likely_it_was(logit: float) -> None:
    mask = torch.tensor([[True, False, True]])
    distribution = Categorical(masked(torch.tensor([[0.0, logit, 1.0]]), mask))
    assert distribution.mode().tolist() == [2]
    assert distribution.log_probs.exp()[0, 1] == 0.0
    free: Any = torch.distributions.Categorical(logits=torch.tensor([[0.0, 1.0]]))
    torch.testing.assert_close(distribution.entropy(), free.entropy())
    torch.testing.assert_close(distribution.log_prob(torch.tensor([0])), free.log_prob(torch.tensor([0])))


def test_the_only_value_that_is_allowed_is_certain() -> None:
    distribution = Categorical(masked(torch.tensor([[0.0, 9.0, -9.0]]), torch.tensor([[False, False, True]])))
    assert distribution.log_prob(torch.tensor([2])).item() == 0.0
    assert distribution.entropy().item() == 0.0


@pytest.mark.parametrize("through", ["log_prob", "entropy"])
def test_no_gradient_reaches_what_is_forbidden(through: str) -> None:
    outputs = torch.tensor([[*LOGITS, 0.5]], requires_grad=True)
    mask = torch.tensor([[True, False, True, True, False, True]])
    distribution = hybrid(outputs, mask)
    value = distribution.log_prob(torch.tensor([[2.0, 1.0, 0.1]])) if through == "log_prob" else distribution.entropy()
    (gradient,) = torch.autograd.grad(value.sum(), outputs)
    assert gradient.isfinite().all()
    assert gradient[0, [1, 4]].tolist() == [0.0, 0.0]
    assert (gradient[0, [0, 2, 3]] != 0).all()


def test_the_row_of_a_policys_head_that_a_mask_forbids_learns_nothing() -> None:
    policy = build_policy(spaces.Dict({"x": SEEN, MASK_KEY: spaces.MultiBinary(4)}), FOUR, Network(), seed=1)
    seen = {"obs/x": torch.rand(8, 2), MASK_KEY: torch.tensor([True, False, True, True]).expand(8, -1)}
    distribution, _ = policy(seen)
    (distribution.log_prob(torch.zeros(8, dtype=torch.long)) + distribution.entropy()).sum().backward()
    assert policy.action_head.weight.grad is not None
    assert (policy.action_head.weight.grad.abs().sum(dim=1) > 0).tolist() == [True, False, True, True]
