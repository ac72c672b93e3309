"""Our Atari as an environment: how games start and end, true scores, what options do, what is refused."""

from __future__ import annotations

import inspect
import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from atari_games import PLAIN, play, random_actions
from gymnasium.utils.env_checker import check_env

from htsrl.envs.contract import check_contract
from htsrl.errors import ConfigError

ale_py = pytest.importorskip("ale_py")
pytest.importorskip("cv2")

from htsrl.envs.atari import FIRE, NOOP, Atari, make_ale  # noqa: E402

REPOSITORY = Path(__file__).parents[2]


# Starts


def test_a_new_game_waits_between_one_frame_and_noop_max() -> None:
    env = Atari("pong", noop_max=3, fire_on_reset=False)
    frames = []
    for seed in range(40):
        env.reset(seed=seed)
        frames.append(env.episode_frames)
    assert set(frames) == {1, 2, 3}


def test_the_default_wait_is_up_to_thirty_frames_and_a_step_of_fire() -> None:
    env = Atari("breakout")
    waits = set()
    for seed in range(80):
        env.reset(seed=seed)
        waits.add(env.episode_frames - 4)
    assert min(waits) >= 1
    assert max(waits) <= 30
    assert len(waits) > 20


@pytest.mark.parametrize(("fires", "lives"), [(True, 4), (False, 5)])
def test_fire_on_reset_starts_a_game_that_waits_for_it(fires: bool, lives: int) -> None:
    env = Atari("breakout", fire_on_reset=fires, noop_max=0)
    env.reset(seed=0)
    for _ in range(60):
        _, _, terminated, _, info = env.step(NOOP)
        if terminated:
            break
    assert info["lives"] == lives


def test_a_game_without_a_fire_button_is_not_fired() -> None:
    env = Atari("ms_pacman", noop_max=0)
    env.reset(seed=0)
    assert env.episode_frames == 0


# Lives and true scores


def test_after_a_lost_life_the_same_game_goes_on() -> None:
    env = Atari("breakout", noop_max=0)
    env.reset(seed=0)
    frames, score = _lose_a_life(env)

    _, info = env.reset(seed=1)

    assert info == {"lives": 4}
    assert env.episode_frames == frames + 1 + 4  # one frame of waiting, a step of FIRE
    assert env.episode_score == score
    observation, *_ = env.step(NOOP)
    assert (observation[0] == observation[2]).all(), "the stack was not filled anew"


def test_a_new_game_can_be_asked_for_after_a_lost_life() -> None:
    env = Atari("breakout", noop_max=0)
    env.reset(seed=0)
    _lose_a_life(env)
    _, info = env.reset(seed=1, options={"new_game": True})
    assert (info["lives"], env.episode_frames, env.episode_score) == (5, 4, 0.0)


def test_a_reset_in_the_middle_of_a_life_begins_a_new_game() -> None:
    env = Atari("breakout", noop_max=0)
    env.reset(seed=0)
    env.step(NOOP)
    env.reset(seed=0)
    assert env.episode_frames == 4


def test_the_true_score_and_length_are_told_when_the_game_is_over_and_only_then() -> None:
    env = Atari("breakout", clip_rewards=False)
    score, lives_ended, told = 0.0, 0, []
    for _, reward, terminated, _, info in play(env, random_actions(env, 1000)):
        score += reward
        lives_ended += terminated
        if "episode" in info:
            assert terminated
            assert info["lives"] == 0
            assert info["episode"] == {"r": score, "l": info["episode"]["l"]}
            told.append((lives_ended, info["episode"]["l"]))
            score, lives_ended = 0.0, 0
    assert len(told) >= 2
    assert all(lives == 5 and frames > 300 for lives, frames in told)


def test_a_game_that_ends_during_the_reset_after_a_lost_life_is_told_by_that_reset() -> None:
    env = Atari("breakout", noop_max=0, max_frames=200)
    env.reset(seed=0)
    _, score = _lose_a_life(env)
    while env.episode_frames < 198:  # as if the life had been lost right before the limit
        env._emulator.emulate_frame(NOOP)

    _, info = env.reset(seed=1)

    assert info == {"lives": 5, "episode": {"r": score, "l": 200}}
    assert env.episode_frames == 4


def _lose_a_life(env: Atari) -> tuple[int, float]:
    for _ in range(200):
        _, _, terminated, _, info = env.step(NOOP)
        if terminated:
            assert info == {"lives": 4}
            return env.episode_frames, env.episode_score
    raise AssertionError("no life was lost")


def test_a_state_saved_at_a_lost_life_goes_on_with_that_game() -> None:
    saved, other = Atari("breakout"), Atari("breakout")
    saved.reset(seed=0)
    _lose_a_life(saved)
    other.restore_state(saved.save_state())
    (expected, info), (got, info_of_other) = saved.reset(seed=4), other.reset(seed=4)
    np.testing.assert_array_equal(got, expected)
    assert info_of_other == info == {"lives": 4}
    assert other.episode_score == saved.episode_score


def test_clipped_rewards_are_the_signs_of_the_raw_ones() -> None:
    clipped, raw = Atari("space_invaders", **PLAIN | {"clip_rewards": True}), Atari("space_invaders", **PLAIN)
    actions = random_actions(raw, 400)
    raw_rewards = [step[1] for step in play(raw, actions)]
    assert [step[1] for step in play(clipped, actions)] == np.sign(raw_rewards).tolist()
    assert max(raw_rewards) > 1


def test_a_lost_point_is_clipped_to_minus_one() -> None:
    env = Atari("pong")
    assert {step[1] for step in play(env, random_actions(env, 300))} == {0.0, -1.0}


# Sticky actions


def test_actions_stick_to_the_frame_before_as_often_as_asked() -> None:
    env = Atari("pong", frame_skip=1, noop_max=0, fire_on_reset=False, repeat_action_probability=0.25)
    env.reset(seed=0)
    pressed: list[int] = []
    emulate = env._emulator.emulate_frame
    env._emulator.emulate_frame = lambda button: pressed.append(button) or emulate(button)  # type: ignore
    asked = [NOOP, FIRE] * 1000
    for action in asked:
        env.step(action)
    # Between two buttons that alternate, the share m of wrong ones satisfies m = p (1 - m).
    wrong = np.mean(np.array(pressed) != asked)
    assert wrong == pytest.approx(0.2, abs=0.03)


# A proper environment


@pytest.mark.parametrize("game", ["pong", "breakout"])
def test_gymnasiums_checker_has_nothing_to_say(game: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make("htsrl/Atari-v0", game=game))
        check_contract(Atari(game))


def test_observations_are_written_where_the_caller_wants_them() -> None:
    plain, direct = Atari("breakout"), Atari("breakout")
    storage = np.full((3, 4, 84, 84), 7, np.uint8)
    first, first_info = plain.reset(seed=0)
    second, *outcome = plain.step(2)

    assert direct.reset_into(storage[0], seed=0) == first_info
    assert direct.step_into(2, storage[1]) == tuple(outcome)

    np.testing.assert_array_equal(storage[:2], [first, second])
    assert (storage[2] == 7).all()


def test_every_observation_is_an_array_of_its_own() -> None:
    env = Atari("pong")
    observations = [env.reset(seed=0)[0]] + [env.step(2)[0] for _ in range(20)]
    copies = [observation.copy() for observation in observations]
    for _ in range(20):
        env.step(3)
    np.testing.assert_array_equal(observations, copies)


def test_options_shape_the_spaces() -> None:
    env = Atari("pong", full_action_space=True, screen_size=64, stack=1)
    assert env.action_space == gymnasium.spaces.Discrete(18)
    assert env.reset(seed=0)[0].shape == env.observation_space.shape == (1, 64, 64)
    assert Atari("pong").action_space == gymnasium.spaces.Discrete(6)


def test_a_screen_can_be_rendered() -> None:
    env = gymnasium.make("htsrl/Atari-v0", game="pong", render_mode="rgb_array")
    env.reset(seed=0)
    screen: Any = env.render()
    assert screen.shape == (210, 160, 3)


def test_an_ale_id_makes_ours_unless_an_argument_is_ale_pys_own() -> None:
    ours = make_ale("ALE/Breakout-v5", stack=2)
    theirs = make_ale("ALE/Breakout-v5", obs_type="ram")
    assert isinstance(ours, Atari)
    assert ours.observation_space.shape == (2, 84, 84)
    assert ours.spec is not None
    assert ours.spec.id == "ALE/Breakout-v5"
    assert isinstance(theirs.unwrapped, ale_py.AtariEnv)
    with pytest.raises(gymnasium.error.NameNotFound):
        make_ale("ALE/Brakeout-v5")
    with pytest.raises(ConfigError, match="ALE/Pong-v5 does not take frame_stack; it takes frame_skip, noop_max"):
        make_ale("ALE/Pong-v5", frame_stack=4)


def test_the_manual_lists_every_option_with_its_default() -> None:
    manual = (REPOSITORY / "docs" / "atari.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \|", manual, re.MULTILINE)
    options = list(inspect.signature(Atari).parameters.values())[1:]
    assert [(name, json.loads(default)) for name, default in rows] == [(one.name, one.default) for one in options]


# Refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"game": "brakeout"}, "game='brakeout' .* names are like breakout"),
        ({"frame_skip": 0}, "frame_skip=0 must be at least 1"),
        ({"noop_max": -1}, "noop_max=-1 must be at least 0"),
        ({"stack": 0}, "stack=0 must be at least 1"),
        ({"screen_size": 0}, "screen_size=0 must be at least 1"),
        ({"repeat_action_probability": 1.0}, "repeat_action_probability=1.0 must be at least 0 and below 1"),
        ({"max_frames": 34}, "max_frames=34 leaves nothing to play.* 34 frames"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Atari(**{"game": "pong", **options})


@pytest.mark.parametrize("package", ["ale_py", "cv2"])
def test_a_missing_package_is_named_with_the_way_to_get_it(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"Atari needs {package}.* pip install htsrl\[atari\]"):
        Atari("pong")


def test_a_step_needs_a_reset_before_and_an_action_that_exists() -> None:
    env = Atari("breakout")
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    env.reset(seed=0)
    for action in (-1, 4):
        with pytest.raises(gymnasium.error.InvalidAction, match=f"action {action} is not one of 0 to 3"):
            env.step(action)
    _lose_a_life(env)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
