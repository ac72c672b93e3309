"""What counts as an episode: what is counted along, or what the environment reports."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest

from htsrl.envs.agents import Outcome
from htsrl.roles.episode import Episode

REPORT: dict[str, Any] = {"episode": {"r": 21, "l": 400}}


def played(episode: Episode, rewards: list[float], cut: bool = False) -> Episode:
    episode.begin_next()
    for i, reward in enumerate(rewards):
        last = i == len(rewards) - 1
        episode.add(Outcome(reward, last and not cut, last and cut, reward, last, last and cut, {}))
    return episode


def test_returns_and_lengths_are_counted_along() -> None:
    episode = played(Episode(reported=False), [1.0, 0.5])
    assert (episode.is_over, episode.number, episode.ended({})) == (True, 0, (1.5, 2))
    assert played(episode, [2.0]).ended(REPORT) == (2.0, 1), "what a stranger puts into info is none of our business"


def test_a_reported_episode_is_what_the_report_says_and_a_lost_life_is_none() -> None:
    episode = played(Episode(reported=True), [1.0, 1.0])
    assert episode.ended({}) is None
    assert episode.ended(REPORT) == (21.0, 400)


def test_an_episode_that_a_wrapper_cuts_short_ends_all_the_same() -> None:
    """Otherwise an evaluation of such an environment would never end."""
    assert played(Episode(reported=True), [1.0, 1.0], cut=True).ended({}) == (2.0, 2)


@pytest.mark.parametrize("says_so", [True, False])
def test_an_environment_says_whether_it_reports_also_through_wrappers(says_so: bool) -> None:
    env: Any = gymnasium.make("CartPole-v1")
    if says_so:
        env.unwrapped.reports_episodes = True
    assert Episode.of(env).is_reported_in(REPORT) == says_so
