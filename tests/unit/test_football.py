"""Our football plays what gfootball's own environment plays, by seeds that reach the engine, and can be saved."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from numpy.typing import NDArray

from htsrl.config import Network
from htsrl.envs.contract import check_contract
from htsrl.envs.football import Football, FootballTeam, make_football
from htsrl.envs.football.engine import Kickoff
from htsrl.envs.football.settings import Settings, import_simulator, line_up, scenarios
from htsrl.envs.team import Team
from htsrl.errors import ConfigError, EnvironmentFailure
from htsrl.policies.policy import build_policy

pytest.importorskip("gfootball")
gfootball_env = pytest.importorskip("gfootball.env")

ACADEMY = [
    "academy_empty_goal_close", "academy_empty_goal", "academy_run_to_score", "academy_run_to_score_with_keeper",
    "academy_pass_and_shoot_with_keeper", "academy_run_pass_and_shoot_with_keeper", "academy_3_vs_1_with_keeper",
    "academy_corner", "academy_counterattack_easy", "academy_counterattack_hard", "academy_single_goal_versus_lazy",
]  # fmt: skip
GAMES = ["1_vs_1_easy", "5_vs_5", "11_vs_11_easy_stochastic", "11_vs_11_stochastic", "11_vs_11_hard_stochastic"]
CLOSE = "academy_empty_goal_close"
LEFT, RIGHT, SHOT, SPRINT = 1, 5, 12, 13

Step = tuple[bytes, Any, Any, Any, dict[str, Any]]


def random_actions(steps: int, players: int = 1, seed: int = 0) -> NDArray[np.int64]:
    shape = (steps,) if players == 1 else (steps, players)
    return np.random.default_rng(seed).integers(19, size=shape)


def play(env: gymnasium.Env[Any, Any], actions: NDArray[np.int64], first_seed: int | None = 0) -> Iterator[Step]:
    """Every step and, where an episode ends, the reset after it, which has the next seed; None goes on as it stands."""
    seed = 100 if first_seed is None else first_seed
    if first_seed is not None:
        observation, info = env.reset(seed=seed)
        yield observation.tobytes(), 0.0, False, False, info
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        yield observation.tobytes(), *(np.array(part).tolist() for part in (reward, terminated, truncated)), info
        if np.all(terminated) or np.all(truncated):
            seed += 1
            observation, info = env.reset(seed=seed)
            yield observation.tobytes(), 0.0, False, False, info


def score(env: Football, seed: int = 0) -> list[tuple[float, bool, bool, dict[str, Any]]]:
    """Run to the empty goal and shoot."""
    env.reset(seed=seed)
    steps = []
    for action in [RIGHT, SPRINT, RIGHT, RIGHT, *[SHOT] * 40]:
        steps.append(env.step(action)[1:])
        if steps[-1][1] or steps[-1][2]:
            return steps
    raise AssertionError("the episode did not end")


# The same as gfootball's own environment


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


# Seeds


@pytest.mark.parametrize("scenario", ACADEMY)
def test_every_academy_scenario_plays_and_is_a_function_of_its_seed_whatever_came_before(scenario: str) -> None:
    fresh, used = Football(scenario), Football(scenario)
    list(play(used, random_actions(15, seed=7), first_seed=9))
    actions = random_actions(25)
    got = list(play(fresh, actions))
    assert got == list(play(used, actions))
    assert got != list(play(fresh, actions, first_seed=1))


@pytest.mark.parametrize("scenario", GAMES)
def test_full_games_play(scenario: str) -> None:
    env = Football(scenario)
    assert not any(step[2] or step[3] for step in play(env, random_actions(12)))


def test_who_kicks_off_a_full_game_is_a_function_of_the_seed_and_not_of_the_games_before() -> None:
    env = Football("5_vs_5")
    first = [env.reset(seed=seed)[0] for seed in range(6)]
    again = [env.reset(seed=seed)[0] for seed in reversed(range(6))]
    np.testing.assert_array_equal(first, again[::-1])
    ours = {_nearest_to_the_middle(observation) for observation in first}
    assert ours == {True, False}


def _nearest_to_the_middle(observation: NDArray[Any]) -> bool:
    """Whether one of ours is nearer to the centre spot than all of theirs."""
    distances = [np.hypot(*(np.argwhere(observation[..., layer]).T - [[36], [48]])).min() for layer in (12, 13)]
    return bool(distances[0] < distances[1])


def test_a_reset_without_a_seed_goes_on_with_the_random_numbers_of_the_last_one() -> None:
    first, second = Football(CLOSE), Football(CLOSE)
    kickoffs = []
    for env in (first, second):
        env.reset(seed=1)
        for _ in range(3):
            env.reset()
            kickoffs.append(env._match._engine.kickoff)
    assert kickoffs[:3] == kickoffs[3:]
    assert len(set(kickoffs)) == 3


def test_no_global_generator_is_read_or_moved() -> None:
    env = Football("academy_corner")
    trajectories = []
    for global_seed in (1, 2):
        random.seed(global_seed)
        np.random.seed(global_seed)
        before = random.getstate(), np.random.get_state()[1].tobytes()  # type: ignore[index]
        trajectories.append(list(play(env, random_actions(10))))
        Football("academy_corner")
        assert (random.getstate(), np.random.get_state()[1].tobytes()) == before  # type: ignore[index]
    assert trajectories[0] == trajectories[1]


DIGEST = """
import hashlib, sys
import numpy as np
from htsrl.envs.football import make_football

scenario, players = sys.argv[1], int(sys.argv[2])
env = make_football(f"football/{scenario}-v0", players=players)
rng, digest, seed = np.random.default_rng(0), hashlib.sha256(), 5
observation, _ = env.reset(seed=seed)
for _ in range(40):
    digest.update(observation.tobytes())
    action = rng.integers(19, size=players) if players > 1 else rng.integers(19)
    observation, reward, terminated, truncated, info = env.step(action)
    digest.update(str((np.asarray(reward).tolist(), np.all(terminated), np.all(truncated), info)).encode())
    if np.all(terminated) or np.all(truncated):
        seed += 1
        observation, _ = env.reset(seed=seed)
print(digest.hexdigest(), "with torch" if "torch" in sys.modules else "without torch")
"""


def in_a_process(program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.mark.parametrize(
    ("scenario", "players"),
    [(CLOSE, 1), ("academy_run_to_score_with_keeper", 1), ("academy_corner", 1), ("academy_3_vs_1_with_keeper", 3)],
)
def test_two_processes_see_the_same(scenario: str, players: int) -> None:
    digests = {in_a_process(DIGEST, scenario, str(players)) for _ in range(2)}
    assert len(digests) == 1
    assert digests.pop().endswith("without torch\n")


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


# Save and restore


@pytest.mark.parametrize(
    ("scenario", "players", "options"),
    [
        ("academy_3_vs_1_with_keeper", 3, {}),
        ("academy_run_to_score", 1, {}),
        ("academy_corner", 1, {"representation": "simple115v2", "rewards": "scoring"}),
        ("5_vs_5", 1, {}),  # where the engine's own states are not exact
    ],
)
@pytest.mark.parametrize("steps_before", [0, 9])
def test_a_restored_match_goes_on_like_the_saved_one(
    scenario: str, players: int, options: dict[str, Any], steps_before: int
) -> None:
    saved, unsaved, fresh, used = (
        make_football(f"football/{scenario}-v0", players=players, **options) for _ in range(4)
    )
    before, after = random_actions(steps_before, players), random_actions(50, players, seed=1)
    for env in (saved, unsaved):
        list(play(env, before, first_seed=3))
    list(play(used, random_actions(20, players, seed=2), first_seed=6))

    state = saved.save_state()
    for env in (fresh, used):
        env.restore_state(state)

    assert isinstance(state, bytes)
    expected = list(play(unsaved, after, first_seed=None))
    for env in (saved, fresh, used):
        assert list(play(env, after, first_seed=None)) == expected
    saved.restore_state(state)
    assert list(play(saved, after, first_seed=None)) == expected


CONTINUATION = """
import hashlib, sys
import numpy as np
from htsrl.envs.football import FootballTeam

env = FootballTeam("academy_counterattack_easy", players=3)
env.restore_state(open(sys.argv[1], "rb").read())
for action in np.random.default_rng(4).integers(19, size=(15, 3)):
    observations, rewards, terminated, truncated, info = env.step(action)
    print(hashlib.sha256(observations).hexdigest(), rewards.tolist(), terminated.tolist(), truncated.tolist(), info)
"""


def test_another_process_goes_on_from_a_saved_state(tmp_path: Path) -> None:
    env = FootballTeam("academy_counterattack_easy", players=3)
    env.reset(seed=0)
    for action in random_actions(5, players=3):
        env.step(action)
    (tmp_path / "state").write_bytes(env.save_state())
    lines = in_a_process(CONTINUATION, str(tmp_path / "state")).splitlines()
    expected = []
    for action in random_actions(15, players=3, seed=4):
        observations, rewards, terminated, truncated, info = env.step(action)
        digest = hashlib.sha256(observations).hexdigest()  # type: ignore[arg-type]
        expected.append(f"{digest} {rewards.tolist()} {terminated.tolist()} {truncated.tolist()} {info}")
    assert lines == expected


def test_a_match_saved_after_its_end_still_needs_a_reset_and_draws_the_same_kick_off() -> None:
    saved, other = Football(CLOSE), Football(CLOSE)
    score(saved)
    other.restore_state(saved.save_state())
    with pytest.raises(gymnasium.error.ResetNeeded):
        other.step(0)
    np.testing.assert_array_equal(other.reset()[0], saved.reset()[0])
    assert other._match._engine.kickoff == saved._match._engine.kickoff


def test_a_restored_team_is_active_if_it_was() -> None:
    saved, other = (FootballTeam("academy_3_vs_1_with_keeper", players=2) for _ in range(2))
    other.restore_state(saved.save_state())
    assert not other.active.any()
    saved.reset(seed=0)
    other.restore_state(saved.save_state())
    assert other.active.all()


def test_a_state_fits_only_the_scenario_and_the_options_it_was_saved_with() -> None:
    env = Football(CLOSE)
    env.reset(seed=0)
    state = env.save_state()
    with pytest.raises(ConfigError, match="scenario='academy_empty_goal_close' cannot be restored with scenario='acad"):
        Football("academy_corner").restore_state(state)
    with pytest.raises(ConfigError, match="players=1 cannot be restored with players=2"):
        FootballTeam(CLOSE, players=2).restore_state(state)
    with pytest.raises(ConfigError, match="rewards='scoring,checkpoints' cannot be restored with rewards='scoring'"):
        Football(CLOSE, rewards="scoring").restore_state(state)
    for broken in (b"", b"junk" + state[4:], state[:-1], b"\xff" + state, b"[]"):
        with pytest.raises(ConfigError, match="not a whole state"):
            env.restore_state(broken)


@pytest.mark.parametrize("steps", [10, 80])
def test_a_match_goes_on_exactly_where_the_engines_own_state_would_not(steps: int) -> None:
    saved, other = Football("5_vs_5"), Football("5_vs_5")
    saved.reset(seed=0)
    saved._match._kick_off(Kickoff(seed=1001, we_kick_off=False))
    rng = np.random.default_rng(0)
    for action in rng.integers(19, size=steps):
        saved.step(action)
    after = rng.integers(19, size=30)
    other.restore_state(saved.save_state())
    for action in after:
        saved.step(action)
        other.step(action)
        assert _positions(other) == _positions(saved)


def _positions(env: Football) -> list[float]:
    info = env._match._engine.info
    return [member.position[axis] for team in (info.left_team, info.right_team) for member in team for axis in (0, 1)]


def test_a_replay_that_goes_astray_is_noticed() -> None:
    env = Football("academy_run_to_score")
    env.reset(seed=0)
    for _ in range(6):
        env.step(RIGHT)
    document = json.loads(env.save_state())
    document["actions"][1] = [LEFT]
    with pytest.raises(EnvironmentFailure, match="academy_run_to_score did not replay to the state that was saved"):
        env.restore_state(json.dumps(document).encode())


def test_a_closed_environments_game_is_used_again_and_remembers_nothing() -> None:
    expected = list(play(Football("academy_corner"), random_actions(10)))
    first = Football("academy_counterattack_hard")
    list(play(first, random_actions(10)))
    game = first._match._engine._game
    first.close()
    second = Football("academy_corner")
    assert second._match._engine._game is game
    assert list(play(second, random_actions(10))) == expected
    with pytest.raises(gymnasium.error.ResetNeeded):
        first.step(0)


def test_environments_of_one_process_do_not_disturb_each_other() -> None:
    actions = random_actions(20)
    alone = [list(play(Football(scenario), actions)) for scenario in ("academy_corner", "5_vs_5")]
    pair = [play(Football(scenario), actions) for scenario in ("academy_corner", "5_vs_5")]
    together = list(zip(*pair, strict=False))
    for index, expected in enumerate(alone):
        assert [steps[index] for steps in together] == expected[: len(together)]


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
