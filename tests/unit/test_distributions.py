"""Distributions against torch's own, and their samples against their probabilities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from helpers import assert_same_run, run
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import AffineTransform, Normal, TanhTransform, TransformedDistribution

from htsrl import A2C, Experiment, Network
from htsrl.numerics import single_threaded
from htsrl.policies.distributions import (
    Categorical,
    Choices,
    DiagonalGaussian,
    Distribution,
    Hybrid,
    Squash,
    SquashedGaussian,
)
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


@pytest.mark.parametrize("shape", [(1,), (3,)])
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


# --- several choices, squashed numbers, and both ---------------------------------------------------------------------

CATEGORIES = (2, 2, 3, 1, 5, 5, 2)
HALF_RANGES = torch.tensor([2.5, math.nan, 0.1])


def random_rows(num_rows: int, width: int, seed: int = 0) -> Tensor:
    return torch.randn(num_rows, width, generator=torch.Generator().manual_seed(seed))


def random_choices(num_rows: int, categories: tuple[int, ...] = CATEGORIES) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.stack([torch.randint(n, (num_rows,), generator=generator) for n in categories], dim=1)


def squashed(mean: Tensor, log_std: Tensor, half_ranges: Tensor = HALF_RANGES) -> SquashedGaussian:
    return SquashedGaussian(DiagonalGaussian(mean, log_std), Squash.of(half_ranges))


def test_several_choices_are_worth_the_sum_of_each() -> None:
    logits, actions = random_rows(6, sum(CATEGORIES)), random_choices(6)
    ours = Choices(logits, CATEGORIES)
    each = [Categorical(part) for part in torch.split(logits, list(CATEGORIES), dim=1)]
    log_probs = sum(part.log_prob(actions[:, i]) for i, part in enumerate(each))
    torch.testing.assert_close(ours.log_prob(actions), log_probs)
    torch.testing.assert_close(ours.entropy(), sum(part.entropy() for part in each))
    assert torch.equal(ours.mode(), torch.stack([part.mode() for part in each], dim=1))
    gumbel = noise(ActionNoise(gumbel=sum(CATEGORIES)), 6)
    drawn = [part.sample(own) for part, own in zip(each, torch.split(gumbel, list(CATEGORIES), dim=1), strict=True)]
    assert torch.equal(ours.sample(gumbel), torch.stack(drawn, dim=1))


def test_several_choices_are_drawn_independently_of_each_other() -> None:
    """Chi-square at 0.1 %: 20.52 with five degrees of freedom, of six pairs."""
    logits = torch.tensor([0.5, -0.5, 0.0, 1.0, -1.0])
    actions = Choices(logits.expand(NUM_DRAWS, -1), (2, 3)).sample(noise(ActionNoise(gumbel=5)))
    pairs = np.bincount((actions[:, 0] * 3 + actions[:, 1]).numpy(), minlength=6)
    expected = torch.outer(logits[:2].softmax(0), logits[2:].softmax(0)).flatten().numpy() * NUM_DRAWS
    assert ((pairs - expected) ** 2 / expected).sum() < 20.52


def torchs_squashed(mean: Tensor, log_std: Tensor, half_range: float) -> Any:
    squash = [TanhTransform(), AffineTransform(0.0, half_range)]
    return TransformedDistribution(Normal(mean, log_std.exp()), squash)


def test_log_densities_of_squashed_actions_are_those_of_what_comes_out() -> None:
    mean, log_std, drawn = random_rows(50, 3), torch.tensor([0.3, -0.5, -1.0]), random_rows(50, 3, seed=1)
    ours = squashed(mean, log_std).log_prob(drawn)
    mean, log_std, drawn = mean.double(), log_std.double(), drawn.double()
    expected = sum(
        torchs_squashed(mean[:, i], log_std[i], half).log_prob(torch.tanh(drawn[:, i]) * half)
        for i, half in ((0, 2.5), (2, 0.1))
    )
    expected = expected + Normal(mean[:, 1], log_std[1].exp()).log_prob(drawn[:, 1])  # type: ignore[no-untyped-call]
    torch.testing.assert_close(ours.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("drawn", [0.0, 5.0, 50.0, -5.0, -50.0])
def test_far_out_the_density_of_squashed_actions_and_its_gradients_stay_finite(drawn: float) -> None:
    """There the slope of the hyperbolic tangent is 4 exp(-2 |x|), which itself would be 0."""
    mean, log_std = torch.full((1, 1), drawn, requires_grad=True), torch.zeros(1, requires_grad=True)
    distribution = squashed(mean, log_std, torch.ones(1))
    log_prob = distribution.log_prob(torch.full((1, 1), drawn))
    slope = 2 * math.log(2) - 2 * abs(drawn) - 2 * math.log1p(math.exp(-2 * abs(drawn)))
    assert log_prob.item() == pytest.approx(-0.5 * math.log(2 * math.pi) - slope, rel=1e-5)
    for gradient in torch.autograd.grad((log_prob + distribution.entropy()).sum(), [mean, log_std]):
        assert gradient.isfinite().all()


def test_the_density_of_squashed_actions_adds_up_to_1() -> None:
    """Over the range from -2.5 to 2.5, in steps between which it hardly changes."""
    squash_to = torch.linspace(-2.5, 2.5, 20_003).double()[1:-1]
    drawn = torch.atanh(squash_to / 2.5)[:, None]
    mean, log_std = torch.full((len(drawn), 1), 0.4).double(), torch.tensor([-0.3]).double()
    density = squashed(mean, log_std, torch.tensor([2.5]).double()).log_prob(drawn).exp()
    assert density.sum().item() * (squash_to[1] - squash_to[0]).item() == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("log_std", [-2.0, -0.5, 0.0, 1.0])
def test_the_entropy_of_squashed_actions_is_the_mean_of_minus_their_log_density(log_std: float) -> None:
    mean = torch.tensor([[0.0], [0.7], [-3.0]])
    distribution = squashed(mean, torch.tensor([log_std]), torch.tensor([0.5]))
    drawn = noise(ActionNoise(normal=1)) * math.exp(log_std)
    for row, estimate in enumerate(distribution.entropy().tolist()):
        own = squashed(mean[row].expand(NUM_DRAWS, 1), torch.tensor([log_std]), torch.tensor([0.5]))
        surprise = -own.log_prob(drawn + mean[row])
        error = surprise.std().item() / math.sqrt(NUM_DRAWS)
        assert estimate == pytest.approx(surprise.mean().item(), abs=4 * error + 1e-3)


def test_the_entropy_of_squashed_actions_is_as_exact_as_it_says() -> None:
    """Against an integral over a grid so fine that nothing is left between its points."""
    x = torch.linspace(-12, 12, 100_001).double()
    weights = torch.softmax(-0.5 * x.square(), dim=0)
    for log_std, tolerance in ((-2.0, 1e-4), (0.0, 1e-4), (0.5, 1e-4), (1.0, 1e-3), (1.5, 3e-3), (2.0, 0.03)):
        mean = torch.linspace(0, 6, 13)[:, None]
        ours = squashed(mean, torch.tensor([log_std]), torch.ones(1)).entropy().double()
        y = mean.double() + math.exp(log_std) * x
        slopes = 2 * (math.log(2) - y - torch.nn.functional.softplus(-2 * y))
        expected = log_std + 0.5 * math.log(2 * math.pi * math.e) + (weights * slopes).sum(dim=1)
        torch.testing.assert_close(ours, expected, rtol=0, atol=tolerance)


def test_where_nothing_is_squashed_the_entropy_is_that_of_the_normal_distribution() -> None:
    mean, log_std = random_rows(4, 2), torch.tensor([0.1, -0.7])
    gaussian_alone = DiagonalGaussian(mean, log_std)
    free = squashed(mean, log_std, torch.tensor([math.nan, math.nan]))
    torch.testing.assert_close(free.entropy(), gaussian_alone.entropy())
    torch.testing.assert_close(free.log_prob(mean + 1), gaussian_alone.log_prob(mean + 1))


def test_the_mode_of_squashed_actions_is_their_median() -> None:
    mean = random_rows(4, 3)
    assert torch.equal(squashed(mean, torch.zeros(3)).mode(), mean)


def hybrid_of(outputs: Tensor, log_std: Tensor, squashes: bool) -> Hybrid:
    num_values = sum(CATEGORIES)
    gaussian_part = DiagonalGaussian(outputs[:, num_values:], log_std)
    continuous = SquashedGaussian(gaussian_part, Squash.of(HALF_RANGES)) if squashes else gaussian_part
    return Hybrid(Choices(outputs[:, :num_values], CATEGORIES), continuous, len(CATEGORIES), num_values)


@pytest.mark.parametrize("squashes", [False, True])
def test_a_hybrid_is_worth_the_sum_of_its_choices_and_its_numbers(squashes: bool) -> None:
    outputs, log_std = random_rows(6, sum(CATEGORIES) + 3), torch.tensor([0.1, -0.7, 0.4])
    hybrid, num_values = hybrid_of(outputs, log_std, squashes), sum(CATEGORIES)
    choices: Distribution = Choices(outputs[:, :num_values], CATEGORIES)
    numbers: Distribution = DiagonalGaussian(outputs[:, num_values:], log_std)
    numbers = squashed(outputs[:, num_values:], log_std) if squashes else numbers
    chosen, drawn = random_choices(6), random_rows(6, 3, seed=1)
    torch.testing.assert_close(
        hybrid.log_prob(torch.cat([chosen.float(), drawn], dim=1)), choices.log_prob(chosen) + numbers.log_prob(drawn)
    )
    torch.testing.assert_close(hybrid.entropy(), choices.entropy() + numbers.entropy())
    rows = noise(ActionNoise(gumbel=num_values, normal=3), 6)
    sampled = hybrid.sample(rows)
    assert torch.equal(sampled[:, : len(CATEGORIES)], choices.sample(rows[:, :num_values]).float())
    assert torch.equal(sampled[:, len(CATEGORIES) :], numbers.sample(rows[:, num_values:]))
    assert torch.equal(hybrid.mode(), torch.cat([choices.mode().float(), numbers.mode()], dim=1))


@pytest.mark.parametrize("kind", ["choice", "choices", "normal", "squashed", "hybrid", "squashed hybrid"])
def test_a_row_has_the_same_bits_in_a_batch_of_any_size(kind: str) -> None:
    """An actor's batches are whatever is ready; several of torch's functions round the end of an array otherwise."""
    num_rows, num_values, log_std = 41, sum(CATEGORIES), torch.tensor([0.1, -0.7, 0.4])
    outputs, numbers = random_rows(num_rows, num_values + 3) * 2, random_rows(num_rows, 3, seed=1)
    chosen, rows = random_choices(num_rows), noise(ActionNoise(gumbel=num_values, normal=3), num_rows)
    build: dict[str, tuple[Any, Tensor, Tensor]] = {
        "choice": (lambda x: Categorical(x[:, 7:12]), chosen[:, 4], rows[:, 7:12]),
        "choices": (lambda x: Choices(x[:, :num_values], CATEGORIES), chosen, rows[:, :num_values]),
        "normal": (lambda x: DiagonalGaussian(x[:, num_values:], log_std), numbers, rows[:, num_values:]),
        "squashed": (lambda x: squashed(x[:, num_values:], log_std), numbers, rows[:, num_values:]),
    }
    build |= {
        name: (lambda x, s=name != "hybrid": hybrid_of(x, log_std, s), torch.cat([chosen.float(), numbers], 1), rows)
        for name in ("hybrid", "squashed hybrid")
    }
    distribution, actions, own_noise = build[kind]
    with single_threaded(), torch.inference_mode():
        whole = distribution(outputs)
        log_probs, sampled = whole.log_prob(actions), whole.sample(own_noise)
        for size in range(1, num_rows):
            for first in range(0, num_rows - size + 1, 3):
                part = slice(first, first + size)
                one = distribution(outputs[part])
                assert torch.equal(one.log_prob(actions[part]), log_probs[part])
                assert torch.equal(one.sample(own_noise[part]), sampled[part])


def test_a_run_with_squashed_actions_has_the_same_digest_however_many_act_at_once() -> None:
    experiment = Experiment(
        "Pendulum-v1",
        algorithm=A2C(),
        network=Network(bounded_actions="squash"),
        num_envs=32,
        total_steps=32 * 5 * 2,
    )
    assert_same_run(run(experiment, num_executors=1, num_actors=0), run(experiment, num_executors=8, num_actors=0))
