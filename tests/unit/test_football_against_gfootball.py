"""Our football plays what gfootball's own environment plays, also where a set piece is held up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from football_matches import CLOSE, RIGHT, SHOT, random_actions
from numpy.typing import NDArray

from htsrl.envs.football import Football, make_football
from htsrl.envs.football.engine import Kickoff

pytest.importorskip("gfootball")
gfootball_env = pytest.importorskip("gfootball.env")


class Theirs:
    """gfootball's own environment, begun as ours began."""

    def __init__(self, scenario: str, players: int, representation: str, rewards: str) -> None:
        self._env = gfootball_env.create_environment(
            scenario,
            stacked=representation == "extracted",
            representation=representation,
            rewards=rewards,
            number_of_left_players_agent_controls=players,
        )
        self.step = self._env.step
        self.core = self._env.unwrapped._env

    def reset_like(self, kickoff: Kickoff) -> Any:
        config = self._env.unwrapped._config
        config["game_engine_random_seed"] = kickoff.seed
        config["reverse_team_processing"] = bool(kickoff.seed % 2)
        config["episode_number"] = int(kickoff.we_kick_off)
        return self._env.reset()

    def close(self) -> None:
        self._env.close()


@pytest.mark.parametrize(
    ("scenario", "players", "representation", "rewards", "steps"),
    [
        (CLOSE, 1, "extracted", "scoring,checkpoints", 100),
        ("academy_run_to_score_with_keeper", 1, "extracted", "scoring,checkpoints", 100),
        ("academy_3_vs_1_with_keeper", 3, "extracted", "scoring,checkpoints", 100),
        ("academy_corner", 1, "extracted", "scoring", 60),
        ("academy_counterattack_hard", 4, "simple115v2", "scoring,checkpoints", 60),
        ("academy_pass_and_shoot_with_keeper", 1, "simple115v2", "scoring", 60),
        ("5_vs_5", 4, "extracted", "scoring,checkpoints", 80),
        ("11_vs_11_easy_stochastic", 1, "extracted", "scoring,checkpoints", 60),
    ],
)
def test_observations_rewards_and_ends_are_those_of_gfootballs_own_wrappers(
    scenario: str, players: int, representation: str, rewards: str, steps: int
) -> None:
    theirs = Theirs(scenario, players, representation, rewards)
    ours = make_football(f"football/{scenario}-v0", players=players, representation=representation, rewards=rewards)
    seed = 3

    got = ours.reset(seed=seed)[0]
    np.testing.assert_array_equal(got, theirs.reset_like(ours._match._engine.kickoff))
    for action in _towards_the_goal(steps, players):
        expected, expected_reward, done, _ = theirs.step(action.tolist() if players > 1 else int(action))
        got, reward, terminated, truncated, _ = ours.step(action)
        np.testing.assert_array_equal(got, expected)
        assert got.dtype == expected.dtype
        assert np.asarray(reward) == pytest.approx(np.asarray(expected_reward), abs=1e-6)
        assert bool(np.all(terminated) or np.all(truncated)) == done
        if done:
            seed += 1
            got = ours.reset(seed=seed)[0]
            np.testing.assert_array_equal(got, theirs.reset_like(ours._match._engine.kickoff))
    theirs.close()


def _towards_the_goal(steps: int, players: int) -> NDArray[np.int64]:
    """Random actions of which half run right or shoot, so that goals and checkpoints occur."""
    rng = np.random.default_rng(5)
    actions, eager = random_actions(steps, players), rng.choice([RIGHT, RIGHT, SHOT], size=(steps, players))
    return np.where(rng.random(actions.shape) < 0.5, actions, eager.reshape(actions.shape))


@pytest.mark.parametrize("waited", [22, 32])
def test_a_set_piece_that_is_held_up_goes_on_as_in_gfootball(waited: int) -> None:
    theirs, ours = Theirs("1_vs_1_easy", 1, "extracted", "scoring"), Football("1_vs_1_easy")
    ours.reset(seed=1)
    theirs.reset_like(ours._match._engine.kickoff)
    games = ours._match._engine._game, theirs.core._env
    steps_forced = 0
    for _ in range(180):
        expected, *_ = theirs.step(RIGHT)
        got, *_ = ours.step(RIGHT)
        np.testing.assert_array_equal(got, expected)
        assert games[0].waiting_for_game_count == games[1].waiting_for_game_count
        steps_forced += games[0].waiting_for_game_count > 20
        for game in games:
            if game.waiting_for_game_count == 22:
                game.waiting_for_game_count = waited
    assert steps_forced > 3
    theirs.close()
