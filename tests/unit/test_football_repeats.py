"""A football match is a function of seed and actions: beside others, in any process, and from a saved state."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from football_matches import ACADEMY, CLOSE, GAMES, LEFT, RIGHT, play, random_actions, score
from numpy.typing import NDArray

from htsrl.envs.football import Football, FootballTeam, make_football
from htsrl.envs.football.engine import Kickoff
from htsrl.errors import ConfigError, EnvironmentFailure

pytest.importorskip("gfootball.env")


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
