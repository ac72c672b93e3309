"""Randomness is a function of (seed, purpose, place), not a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from htsrl import seeding
from htsrl.seeding import ActionNoise, Purpose, network_seed, reset_seed, shuffled

NOISES = [ActionNoise(gumbel=2), ActionNoise(gumbel=19), ActionNoise(normal=1), ActionNoise(normal=6)]
NOISES += [ActionNoise(gumbel=3, normal=2)]
seeds = st.integers(0, 2**63 - 1)
places = st.integers(0, 2**31)

RESET_SEEDS = [1049475821, 1438103104, 1122333130]
NETWORK_SEED = 4484150664107860426
SHUFFLE = [0, 6, 3, 2, 5, 4, 1, 7]
NOISE = [
    [-0.48504483699798584, 0.332218736410141, -0.022751187905669212],
    [0.08178618550300598, 3.3248467445373535, -0.20376719534397125],
]


@given(st.sampled_from(NOISES), seeds, st.integers(0, 1000), places, st.integers(1, 20))
def test_the_noise_of_a_step_is_the_same_drawn_alone_or_in_a_block(
    noise: ActionNoise, seed: int, env: int, first_step: int, num_steps: int
) -> None:
    block = noise.draw(seed, env, first_step, num_steps)
    alone = [noise.draw(seed, env, first_step + i, 1) for i in range(num_steps)]
    assert block.shape == (num_steps, noise.columns)
    assert block.dtype == np.float32
    assert block.tobytes() == np.concatenate(alone).tobytes()


@pytest.mark.parametrize("noise", NOISES)
def test_noise_differs_over_seed_environment_step_and_purpose(noise: ActionNoise) -> None:
    drawn = [
        noise.draw(seed, env, step, 1, purpose).tobytes()
        for seed in (0, 1, 2**32, 2**63 - 1)
        for env in (0, 1, 15)
        for step in (0, 1, 2, 10**9)
        for purpose in (Purpose.ACTION_NOISE, Purpose.EVALUATION_NOISE)
    ]
    assert len(set(drawn)) == len(drawn) == 96


def test_noise_does_not_repeat_over_a_long_run() -> None:
    rows = ActionNoise(normal=1).draw(seed=1, env=0, first_step=0, num_steps=50_000)
    later = ActionNoise(normal=1).draw(seed=1, env=0, first_step=50_000, num_steps=50_000)
    # float32 normals take few enough values for chance coincidences; a repeated stretch would double them all.
    assert len(np.unique(np.concatenate([rows, later]))) > 98_000


class Extreme:
    """A generator that only ever says one word."""

    def __init__(self, word: int) -> None:
        self._word = word

    def random_raw(self, size: int) -> NDArray[np.uint64]:
        return np.full(size, self._word, np.uint64)


@pytest.mark.parametrize("word", [0, 1, 2**11, 2**12, 2**63, 2**64 - 2**12, 2**64 - 1])
@pytest.mark.parametrize("noise", NOISES)
def test_noise_is_never_infinite_whatever_the_generator_says(
    noise: ActionNoise, word: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seeding, "_philox", lambda *arguments: Extreme(word))
    assert np.isfinite(noise.draw(0, 0, 0, 2)).all()


def test_reset_seeds_are_distinct_over_environments_episodes_seeds_and_purposes() -> None:
    drawn = [reset_seed(1, env, episode) for env in range(16) for episode in range(100)]
    drawn += [reset_seed(2, env, 0) for env in range(16)]
    drawn += [reset_seed(1, 0, episode, Purpose.EVALUATION_RESET) for episode in range(100)]
    assert len(set(drawn)) == len(drawn)


@given(seeds, st.integers(0, 2**32 - 1), places)
def test_reset_seeds_fit_every_simulator(seed: int, env: int, episode: int) -> None:
    """31 bits: ALE and others keep a seed in a signed int."""
    assert 0 <= reset_seed(seed, env, episode) < 2**31


@given(seeds, places, st.integers(0, 100), st.integers(1, 200))
def test_a_shuffle_visits_every_step_once(seed: int, update: int, epoch: int, size: int) -> None:
    assert sorted(shuffled(seed, update, epoch, size).tolist()) == list(range(size))


def test_shuffles_differ_over_seed_update_and_epoch() -> None:
    drawn = [
        shuffled(seed, update, epoch, 64).tobytes() for seed in (0, 1) for update in range(20) for epoch in range(10)
    ]
    assert len(set(drawn)) == len(drawn)


def test_every_step_is_as_likely_to_come_first_in_a_shuffle() -> None:
    firsts = np.bincount([shuffled(0, update, 0, 8)[0] for update in range(4000)], minlength=8)
    assert ((firsts - 500.0) ** 2 / 500).sum() < 24.32  # chi-square, 7 degrees of freedom, 0.1 %


@pytest.mark.parametrize(
    "draw",
    [
        lambda: reset_seed(5, 3, 2),
        lambda: network_seed(5),
        lambda: shuffled(5, 3, 2, 30).tolist(),
        lambda: ActionNoise(gumbel=3, normal=2).draw(5, 3, 2, 4).tolist(),
    ],
    ids=["reset", "network", "shuffle", "noise"],
)
def test_nothing_drawn_before_changes_what_is_drawn_now(draw: Callable[[], Any]) -> None:
    before = draw()
    np.random.default_rng().random(10)
    ActionNoise(gumbel=3).draw(5, 3, 2, 4)
    reset_seed(5, 3, 1)
    shuffled(5, 3, 1, 30)
    assert draw() == before


def test_the_randomness_of_a_seed_is_what_it_was_when_results_were_published() -> None:
    """Whoever changes these numbers changes every digest of every run."""
    assert [reset_seed(1, 0, 0), reset_seed(1, 1, 0), reset_seed(1, 0, 1)] == RESET_SEEDS
    assert network_seed(1) == NETWORK_SEED
    assert shuffled(1, 0, 0, 8).tolist() == SHUFFLE
    np.testing.assert_allclose(ActionNoise(gumbel=2, normal=1).draw(1, 0, 0, 2), NOISE, rtol=1e-6)
