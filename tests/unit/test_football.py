"""Our football as an environment: what is seen and paid, to one player or a team, when it ends, what is refused."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from football_matches import ACADEMY, CLOSE, GAMES, LEFT, RIGHT, SHOT, play, random_actions, score
from gymnasium.utils.env_checker import check_env
from numpy.typing import NDArray

from htsrl.config import Network
from htsrl.envs.contract import check_contract
from htsrl.envs.football import Football, FootballTeam, make_football
from htsrl.envs.football.settings import Settings, import_simulator, line_up, scenarios
from htsrl.envs.team import Team
from htsrl.errors import ConfigError
from htsrl.policies.policy import build_policy

pytest.importorskip("gfootball.env")


# What is seen


def test_the_newest_map_comes_last_and_the_first_fills_the_stack() -> None:
    env = Football("academy_run_to_score")
    observation, _ = env.reset(seed=0)
    newest = observation[..., 12:]
    for oldest_layer in (0, 4, 8):
        np.testing.assert_array_equal(observation[..., oldest_layer : oldest_layer + 4], newest)
    for _ in range(8):
        before = observation
        observation, *_ = env.step(RIGHT)
        np.testing.assert_array_equal(observation[..., :12], before[..., 4:])
    assert (observation[..., 12:] != newest).any()


def test_a_map_has_a_dot_for_each_player_the_ball_and_the_controlled_one() -> None:
    env = Football("academy_3_vs_1_with_keeper")
    observation, _ = env.reset(seed=0)
    assert set(np.unique(observation)) == {0, 255}
    assert [int((observation[..., layer] > 0).sum()) for layer in range(12, 16)] == [4, 2, 1, 1]
    assert (observation[..., 12] >= observation[..., 15]).all(), "the controlled player is one of ours"


def test_every_observation_is_an_array_of_its_own() -> None:
    env = Football(CLOSE)
    observations = [env.reset(seed=0)[0]] + [env.step(RIGHT)[0] for _ in range(4)]
    copies = [observation.copy() for observation in observations]
    env.step(SHOT)
    np.testing.assert_array_equal(observations, copies)


@pytest.mark.parametrize("players", [1, 3])
def test_observations_are_written_where_the_caller_wants_them(players: int) -> None:
    plain, direct = (make_football("football/academy_3_vs_1_with_keeper-v0", players=players) for _ in range(2))
    first, first_info = plain.reset(seed=0)
    storage: NDArray[np.uint8] = np.full((3, *first.shape, 2), 7, np.uint8)
    action: Any = random_actions(1, players)[0]
    second, *outcome = plain.step(action)

    assert direct.reset_into(storage[0, ..., 0], seed=0) == first_info
    for got, expected in zip(direct.step_into(action, storage[1, ..., 0]), outcome, strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))

    np.testing.assert_array_equal(storage[:2, ..., 0], [first, second])
    assert (storage[2] == 7).all()
    assert (storage[..., 1] == 7).all()


def test_the_nature_cnn_for_football_has_the_papers_size() -> None:
    env = Football(CLOSE)
    policy = build_policy(env.observation_space, env.action_space, Network(), seed=0)
    assert env.observation_space.shape == (72, 96, 16)
    assert sum(parameter.numel() for parameter in policy.parameters()) == 1_424_052


# True scores and ends


def test_a_goal_ends_the_episode_and_its_checkpoints_pay_once() -> None:
    steps = score(Football(CLOSE))
    rewards, (_, terminated, truncated, info) = [step[0] for step in steps], steps[-1]
    assert (terminated, truncated) == (True, False)
    assert info == {"episode": {"r": 1.0, "l": len(steps)}}
    assert sum(rewards) == pytest.approx(2.0)
    assert all(step[3] == {} for step in steps[:-1])


def test_without_checkpoints_only_the_goal_pays() -> None:
    rewards = [step[0] for step in score(Football(CLOSE, rewards="scoring"))]
    assert rewards == [0.0] * (len(rewards) - 1) + [1.0]


def test_a_ball_lost_or_out_of_play_terminates_without_a_goal() -> None:
    env = Football("academy_run_to_score_with_keeper")
    ends = [step for step in play(env, random_actions(150)) if step[2] or step[3]]
    assert ends
    assert all(step[2] and not step[3] for step in ends)
    assert {step[4]["episode"]["r"] for step in ends} == {0.0}


def test_an_episode_is_truncated_when_the_scenarios_time_is_up_and_tells_the_true_score() -> None:
    env = Football("1_vs_1_easy")
    env.reset(seed=0)
    for length in range(1, 502):  # gfootball's limit of 500 is passed, not reached
        _, _, terminated, truncated, info = env.step(LEFT)
        assert (terminated, truncated) == (False, length == 501), length
        assert info == ({"episode": {"r": -2.0, "l": 501}} if truncated else {})
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)


# Teams


def test_a_team_is_seen_and_paid_player_by_player() -> None:
    env = make_football("football/academy_3_vs_1_with_keeper-v0", players=3)
    assert isinstance(env, FootballTeam)
    assert isinstance(env, Team)
    assert not env.active.any()
    observations, _ = env.reset(seed=0)
    assert observations.shape == (3, 72, 96, 16)
    assert env.active.tolist() == [True] * 3
    themselves = {np.flatnonzero(observations[player, ..., 15])[0] for player in range(3)}
    assert len(themselves) == 3
    for layer in (12, 13, 14):
        assert (observations[..., layer] == observations[0, ..., layer]).all()
    for action in random_actions(400, players=3):
        _, rewards, terminated, truncated, info = env.step(action)
        assert rewards.shape == terminated.shape == truncated.shape == (3,)
        if terminated.any() or truncated.any():
            break
    assert terminated.all()
    assert not env.active.any()
    assert set(info) == {"episode"}


def test_checkpoints_are_paid_to_the_player_at_the_ball() -> None:
    env = FootballTeam("academy_3_vs_1_with_keeper", players=3)
    env.reset(seed=0)
    paid = sum(env.step(np.full(3, RIGHT))[1] for _ in range(8))
    assert isinstance(paid, np.ndarray)
    assert (paid > 0).sum() == 1


def test_a_team_needs_an_action_for_each_player() -> None:
    env = FootballTeam("academy_3_vs_1_with_keeper", players=3)
    env.reset(seed=0)
    with pytest.raises(gymnasium.error.InvalidAction, match="2 actions were given for 3 players"):
        env.step(np.zeros(2, np.int64))


# A proper environment


def test_gymnasiums_checker_has_nothing_to_say() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make("htsrl/Football-v0", scenario=CLOSE))
        check_contract(Football(CLOSE))


def test_an_id_makes_one_player_or_a_team() -> None:
    one = make_football("football/academy_corner-v0", rewards="scoring")
    assert isinstance(one, Football)
    assert one.spec is not None
    assert one.spec.id == "football/academy_corner-v0"
    made = gymnasium.make("htsrl/Football-v0", scenario="academy_corner", players=2)
    assert isinstance(made, FootballTeam)
    assert made.num_agents == 2


def test_all_scenarios_are_known() -> None:
    assert {*ACADEMY, *GAMES} < set(scenarios())
    assert [line_up(Settings(name, 1, "extracted", "scoring")).game_duration for name in ACADEMY] == [400] * 10 + [3000]


# Refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scenario": "academy_corners"}, "scenario='academy_corners' .* names are like academy_corner"),
        ({"scenario": "corner"}, "scenario='corner' .* names are like academy_corner"),
        ({"scenario": "zzz"}, "names are like 11_vs_11_competition, .*academy_single_goal_versus_lazy"),
        (
            {"representation": "pixels"},
            "representation='pixels' is not supported.* 0.6 s; use extracted or simple115v2",
        ),
        ({"representation": "maps"}, "representation='maps' is not one of 'extracted' or 'simple115v2'"),
        ({"rewards": "checkpoints"}, "rewards='checkpoints' is not one of 'scoring' or 'scoring,checkpoints'"),
        ({"players": 5}, "players=5 cannot be controlled in academy_3_vs_1_with_keeper; use 1 to 4"),
        ({"players": 0}, "players=0 cannot be controlled"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    given = {"scenario": "academy_3_vs_1_with_keeper", **options}
    with pytest.raises(ConfigError, match=message):
        make_football(f"football/{given.pop('scenario')}-v0", **given)


@pytest.mark.parametrize(
    ("env_id", "options", "message"),
    [
        ("football/academy_corner-v1", {}, "'football/academy_corner-v1' is .* use football/academy_corner-v0"),
        ("football/academy_corner", {}, "use football/academy_corner-v0"),
        ("football/5_vs_5-v0", {"stack": 4}, "does not take stack; it takes players, representation, rewards"),
    ],
)
def test_names_and_arguments_that_do_not_exist_are_refused(env_id: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_football(env_id, **options)


@pytest.mark.parametrize("package", ["gfootball", "gfootball_engine", "gym", "six"])
def test_a_missing_package_is_named_with_the_way_to_get_it(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"football needs {package}.* `make football` .*docs/football.md"):
        import_simulator()
    with pytest.raises(ConfigError, match=f"football needs {package}"):
        Football(CLOSE)


def test_a_step_needs_a_reset_before_and_an_action_that_exists() -> None:
    env = Football(CLOSE)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    env.reset(seed=0)
    for action in (-1, 19):
        with pytest.raises(gymnasium.error.InvalidAction, match=f"action {action} is not one of 0 to 18"):
            env.step(action)
