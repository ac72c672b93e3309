"""The simulation of limits on staleness, against episodes counted by hand."""

from __future__ import annotations

import pytest

from htsrl import ConfigError
from htsrl_bench.staleness import StalenessBench, lengths, run, simulate

TINY = StalenessBench(num_envs=2, batch_steps=4, limits=(1,), episodes=8)


def test_an_episode_that_outlived_too_many_versions_is_discarded() -> None:
    """One environment plays 2, 2, 2, 2, 2, ...; each two of them are a version. The other plays 9 steps meanwhile."""
    found = simulate(TINY, 1, [9, 2, 2, 2, 2, 2, 2, 2])
    # After 8 steps, 4 episodes of 2 are learned from: version 2. The one of 9 began at version 0 and ends at 9. Those
    # that end at 10 and 11 count; then there is no further one to begin.
    assert found.discarded_episodes == pytest.approx(1 / 7)
    assert found.discarded_steps == pytest.approx(9 / 21)
    assert found.longest == 2
    assert found.bias == pytest.approx(2 / 3 - 1)
    everything = simulate(TINY, None, [9, 2, 2, 2, 2, 2, 2, 2])
    assert (everything.discarded_steps, everything.bias, everything.longest) == (0, 0, 9)


def test_the_tighter_the_limit_the_shorter_the_episodes_that_are_learned_from() -> None:
    bench = StalenessBench(num_envs=64, batch_steps=640, limits=(1, 4, 16), episodes=4000)
    kept, *limited = run(bench)
    assert (kept.discarded_steps, kept.bias) == (0, 0)
    assert limited[0].bias < limited[1].bias < limited[2].bias < 0
    assert limited[0].discarded_steps > limited[1].discarded_steps > limited[2].discarded_steps > 0


def test_lengths_have_the_mean_that_was_asked_for() -> None:
    assert lengths(StalenessBench(shape=3.0, episodes=200_000)).mean() == pytest.approx(100, rel=0.02)


def test_a_law_without_a_mean_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"shape=1.0 must be above 1"):
        StalenessBench(shape=1.0)
