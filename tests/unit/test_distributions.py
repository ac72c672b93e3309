"""Distributions against torch's own, and their samples against their probabilities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from htsrl.policies.distributions import Categorical, DiagonalGaussian
from htsrl.seeding import ActionNoise

NUM_DRAWS = 40_000


def noise(kind: ActionNoise, num_rows: int = NUM_DRAWS, seed: int = 0) -> Tensor:
    return torch.from_numpy(kind.draw(seed, env=0, first_step=0, num_steps=num_rows))


def gaussian(num_rows: int, *shape: int) -> tuple[DiagonalGaussian, Any, Tensor]:
    """Ours, torch's, and some actions."""
    generator = torch.Generator().manual_seed(0)
    mean, actions = (torch.randn(num_rows, *shape, generator=generator) for _ in range(2))
    log_std = torch.randn(shape, generator=generator)
    theirs = torch.distributions.Independent(torch.distributions.Normal(mean, log_std.exp()), len(shape))
    return DiagonalGaussian(mean, log_std), theirs, actions


@settings(deadline=None)
@given(st.lists(st.lists(st.floats(-30, 30, width=32), min_size=3, max_size=3), min_size=1, max_size=5))
def test_log_probabilities_and_entropies_of_a_choice_agree_with_torch(logits: list[list[float]]) -> None:
    ours = Categorical(torch.tensor(logits))
    theirs: Any = torch.distributions.Categorical(logits=torch.tensor(logits).double())
    for action in range(3):
        actions = torch.full((len(logits),), action)
        torch.testing.assert_close(ours.log_prob(actions).double(), theirs.log_prob(actions), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours.entropy().double(), theirs.entropy(), rtol=1e-5, atol=1e-5)


def test_the_mode_of_a_choice_is_its_likeliest_action() -> None:
    assert Categorical(torch.tensor([[0.0, 3.0, 1.0], [2.0, -1.0, 0.0]])).mode().tolist() == [1, 0]


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3)])
def test_log_densities_and_entropies_of_normal_actions_agree_with_torch(shape: tuple[int, ...]) -> None:
    ours, theirs, actions = gaussian(7, *shape)
    torch.testing.assert_close(ours.log_prob(actions), theirs.log_prob(actions))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    assert ours.log_prob(actions).shape == ours.entropy().shape == (7,)


def test_the_mode_of_normal_actions_is_their_mean() -> None:
    ours, theirs, _ = gaussian(7, 3)
    assert torch.equal(ours.mode(), theirs.mean)


def test_a_sample_is_a_function_of_its_own_row_and_noise() -> None:
    logits, rows = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), noise(ActionNoise(gumbel=4), 6)
    together = Categorical(logits).sample(rows)
    assert together.tolist() == [Categorical(logits[i : i + 1]).sample(rows[i : i + 1]).item() for i in range(6)]
    before = torch.random.get_rng_state()
    Categorical(logits).sample(rows)
    DiagonalGaussian(logits, torch.zeros(4)).sample(rows)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    ("probabilities", "critical"),  # of the chi-square distribution at 0.1 %, one degree of freedom less than actions
    [([0.5, 0.5], 10.83), ([0.1, 0.2, 0.3, 0.4], 16.27), ([0.001, 0.009, 0.99], 13.82)],
)
def test_sampled_actions_are_as_frequent_as_they_are_probable(probabilities: list[float], critical: float) -> None:
    distribution = Categorical(torch.tensor(probabilities).log().expand(NUM_DRAWS, -1))
    actions = distribution.sample(noise(ActionNoise(gumbel=len(probabilities))))
    counts = np.bincount(actions.numpy(), minlength=len(probabilities))
    expected = NUM_DRAWS * np.array(probabilities)
    assert ((counts - expected) ** 2 / expected).sum() < critical


def test_an_impossible_action_is_never_sampled() -> None:
    distribution = Categorical(torch.tensor([0.0, -1e4, 0.0]).expand(NUM_DRAWS, -1))
    assert 1 not in distribution.sample(noise(ActionNoise(gumbel=3))).tolist()


def test_sampled_normal_actions_have_the_mean_and_deviation_of_their_distribution() -> None:
    mean, log_std = torch.tensor([1.0, -2.0]), torch.tensor([0.5, -1.0])
    actions = DiagonalGaussian(mean.expand(NUM_DRAWS, -1), log_std).sample(noise(ActionNoise(normal=2)))
    standard_error = log_std.exp() / math.sqrt(NUM_DRAWS)
    assert ((actions.mean(0) - mean).abs() < 4 * standard_error).all()
    assert ((actions.std(0) - log_std.exp()).abs() < 4 * standard_error / math.sqrt(2)).all()


def test_normal_noise_has_the_moments_of_a_standard_normal() -> None:
    x = noise(ActionNoise(normal=3)).double().numpy()
    error = 1 / math.sqrt(NUM_DRAWS)
    assert abs(x.mean(0)).max() < 4 * error
    assert abs((x**2).mean(0) - 1).max() < 4 * math.sqrt(2) * error
    assert abs((x**3).mean(0)).max() < 4 * math.sqrt(15) * error
    assert abs((x**4).mean(0) - 3).max() < 4 * math.sqrt(96) * error
    columns = np.corrcoef(x.T) - np.eye(3)
    assert abs(columns).max() < 4 * error
    assert abs((x[1:] * x[:-1]).mean(0)).max() < 4 * error


def test_gumbel_noise_has_the_mean_and_variance_of_a_standard_gumbel() -> None:
    x = noise(ActionNoise(gumbel=2)).double().numpy()
    deviation = math.pi / math.sqrt(6)
    assert abs(x.mean(0) - np.euler_gamma).max() < 4 * deviation / math.sqrt(NUM_DRAWS)
    assert abs(x.std(0) / deviation - 1).max() < 0.03
    assert abs(np.corrcoef(x.T)[0, 1]) < 4 / math.sqrt(NUM_DRAWS)
