"""A game of Atari is a function of seed and actions: in any process, and from a state saved at any step."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from atari_games import PLAIN, play, random_actions

from htsrl.errors import ConfigError

pytest.importorskip("ale_py")
pytest.importorskip("cv2")

from htsrl.envs.atari import NOOP, Atari

# Seeds


@pytest.mark.parametrize("game", ["assault", "qbert"])  # whose emulators remember earlier games
def test_a_game_is_a_function_of_its_seed_and_actions_whatever_came_before(game: str) -> None:
    fresh, used = Atari(game, episodic_life=False), Atari(game, episodic_life=False)
    actions = random_actions(fresh, 120)
    list(play(used, random_actions(used, 150, seed=7), first_seed=9))
    assert list(play(used, actions)) == list(play(fresh, actions))


def test_sticky_actions_are_a_function_of_the_seed() -> None:
    first, second = (Atari("breakout", repeat_action_probability=0.25, noop_max=0) for _ in range(2))
    actions = random_actions(first, 80)
    trajectories = [list(play(env, actions, seed)) for env, seed in ((first, 1), (second, 1), (second, 2))]
    assert trajectories[0] == trajectories[1]
    assert trajectories[1] != trajectories[2]


def test_two_processes_see_the_same() -> None:
    digests = [
        subprocess.run([sys.executable, "-c", DIGEST], capture_output=True, text=True, check=True, timeout=60).stdout
        for _ in range(2)
    ]
    env = Atari("breakout", repeat_action_probability=0.25)
    digest = hashlib.sha256()
    observation, _ = env.reset(seed=3)
    for action in [0, 1, 2, 3] * 40:
        digest.update(observation.tobytes())
        observation, reward, terminated, truncated, _ = env.step(action)
        digest.update(str((reward, terminated, truncated)).encode())
        if terminated or truncated:
            observation, _ = env.reset(seed=4)
    assert digests == [f"{digest.hexdigest()} without torch\n"] * 2


DIGEST = """
import hashlib, sys
from htsrl.envs.atari import Atari
env = Atari("breakout", repeat_action_probability=0.25)
digest = hashlib.sha256()
observation, _ = env.reset(seed=3)
for action in [0, 1, 2, 3] * 40:
    digest.update(observation.tobytes())
    observation, reward, terminated, truncated, _ = env.step(action)
    digest.update(str((reward, terminated, truncated)).encode())
    if terminated or truncated:
        observation, _ = env.reset(seed=4)
print(digest.hexdigest(), "with torch" if "torch" in sys.modules else "without torch")
"""


# Save and restore


@pytest.mark.parametrize(
    ("game", "options"),
    [
        ("pong", {"frame_skip": 1, "stack": 2}),
        ("breakout", {"repeat_action_probability": 0.95}),
        ("qbert", {}),
        ("assault", {"repeat_action_probability": 0.5}),
    ],
)
@pytest.mark.parametrize("steps_before", [0, 70])
def test_a_restored_game_goes_on_like_the_saved_one(game: str, options: dict[str, Any], steps_before: int) -> None:
    saved, unsaved, fresh, used = (Atari(game, **options) for _ in range(4))
    before, after = random_actions(saved, steps_before), random_actions(saved, 120, seed=1)
    for env in (saved, unsaved):
        list(play(env, before))
    list(play(used, random_actions(used, 40, seed=2), first_seed=5))

    state = saved.save_state()
    fresh.restore_state(state)
    used.restore_state(state)

    assert isinstance(state, bytes)
    expected = list(play(unsaved, after, first_seed=None))
    for env in (saved, fresh, used):
        assert list(play(env, after, first_seed=None)) == expected
    saved.restore_state(state)
    assert list(play(saved, after, first_seed=None)) == expected


@pytest.mark.parametrize("frames", [0, 1, 2, 3])
def test_a_game_can_be_saved_in_its_first_frames(frames: int) -> None:
    """Q*bert's first picture takes two frames, which the emulator's own state does not tell."""
    options = {**PLAIN, "frame_skip": 1}
    saved, fresh, used = (Atari("qbert", **options) for _ in range(3))
    list(play(saved, [NOOP] * frames))
    list(play(used, random_actions(used, 30)))
    state, after = saved.save_state(), random_actions(saved, 60)
    expected = list(play(saved, after, first_seed=None))
    for env in (fresh, used):
        env.restore_state(state)
        assert list(play(env, after, first_seed=None)) == expected


def test_a_restored_game_draws_the_same_wait_at_a_reset_without_a_seed() -> None:
    saved, other = Atari("pong"), Atari("pong")
    saved.reset(seed=0)
    other.restore_state(saved.save_state())
    for _ in range(3):
        np.testing.assert_array_equal(other.reset()[0], saved.reset()[0])
        assert other.episode_frames == saved.episode_frames


def test_equal_games_have_equal_states() -> None:
    states = []
    for _ in range(2):
        env = Atari("breakout", repeat_action_probability=0.25)
        list(play(env, random_actions(env, 30)))
        states.append(env.save_state())
    assert states[0] == states[1]


def test_a_state_fits_only_the_game_and_the_options_it_was_saved_with() -> None:
    state = Atari("pong").save_state()
    with pytest.raises(ConfigError, match="saved with game='pong' cannot be restored with game='breakout'"):
        Atari("breakout").restore_state(state)
    with pytest.raises(ConfigError, match="stack=4 cannot be restored with stack=2"):
        Atari("pong", stack=2).restore_state(state)
    for broken in (b"", b"junk" + state[4:], state[:-1]):
        with pytest.raises(ConfigError, match="not a whole state"):
            Atari("pong").restore_state(broken)
