"""Our Atari shows what Gymnasium's wrappers show, to the last bit."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from atari_games import PLAIN, Step, play, random_actions
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

pytest.importorskip("ale_py")
cv2 = pytest.importorskip("cv2")

from htsrl.envs.atari import FIRE, Atari, FrameStack, UInt8  # noqa: E402

IDS = {"pong": "ALE/Pong-v5", "breakout": "ALE/Breakout-v5", "space_invaders": "ALE/SpaceInvaders-v5"}
IDS |= {"qbert": "ALE/Qbert-v5", "air_raid": "ALE/AirRaid-v5", "assault": "ALE/Assault-v5"}


def wrapped(game: str, max_frames: int = 108_000, **preprocessing: Any) -> gymnasium.Env[Any, Any]:
    raw = gymnasium.make(IDS[game], frameskip=1, repeat_action_probability=0.0, max_num_frames_per_episode=max_frames)
    return FrameStackObservation(AtariPreprocessing(raw, **{"noop_max": 0, **preprocessing}), 4)


def without_info(steps: list[Step]) -> list[tuple[bytes, float, bool, bool, int]]:
    return [(*step[:4], step[4]["lives"]) for step in steps]


@pytest.mark.parametrize(
    ("game", "steps", "options"),
    [
        ("pong", 500, {}),
        ("breakout", 500, {}),
        ("space_invaders", 600, {}),
        ("breakout", 200, {"noop_max": 30}),
        ("qbert", 400, {"noop_max": 30}),
        ("assault", 300, {"noop_max": 7}),
        ("air_raid", 300, {"screen_size": 80}),
        ("breakout", 300, {"frame_skip": 1}),
        ("space_invaders", 300, {"frame_skip": 2}),
    ],
)
def test_frames_rewards_and_ends_are_those_of_gymnasiums_wrappers(
    game: str, steps: int, options: dict[str, int]
) -> None:
    theirs, ours = wrapped(game, **options), Atari(game, **{**PLAIN, **options})
    actions = random_actions(ours, steps)

    compared = 0
    for expected, got in zip(play(theirs, actions), play(ours, actions), strict=True):
        assert without_info([got]) == without_info([expected]), f"at {compared}"
        compared += 1

    assert compared > steps
    assert theirs.action_space == ours.action_space


def test_a_lost_life_ends_the_episode_where_gymnasiums_wrapper_ends_it() -> None:
    theirs, ours = wrapped("breakout", terminal_on_life_loss=True), Atari("breakout", **PLAIN | {"episodic_life": True})
    steps = zip(play(theirs, [FIRE] * 60), play(ours, [FIRE] * 60), strict=True)

    for expected, got in steps:
        assert without_info([got]) == without_info([expected])
        if got[2]:
            break
    else:
        pytest.fail("no life was lost")
    assert got[4] == {"lives": 4}


def test_a_truncated_game_is_that_of_gymnasiums_wrappers_and_tells_its_score() -> None:
    theirs, ours = wrapped("pong", max_frames=450), Atari("pong", max_frames=450, **PLAIN)
    actions = random_actions(ours, 230)

    expected, got = list(play(theirs, actions)), list(play(ours, actions))

    assert without_info(got) == without_info(expected)
    (first, second) = [step for step in got if step[3]]
    assert first[2] is False
    assert first[4]["episode"]["l"] == second[4]["episode"]["l"] == 450
    assert first[4]["episode"]["r"] == sum(step[1] for step in got[: got.index(first) + 1]) < 0


@pytest.mark.parametrize("size", [42, 64, 80, 84, 105, 160, 210, 256])
def test_resizing_what_changed_gives_the_bits_of_resizing_all(size: int) -> None:
    rng = np.random.default_rng(size)
    screen: UInt8 = rng.integers(0, 256, (210, 160), np.uint8)
    stack = FrameStack(3, size, screen)
    stack.fill(screen)
    shown = [screen.copy()] * 3
    for step in range(40):
        top, bottom = sorted(rng.integers(0, 211, size=2))
        screen[top:bottom] = rng.integers(0, 256, (bottom - top, 160), np.uint8)
        if step % 10 == 9:
            screen[:] = shown[-1]
        stack.push(screen)
        shown = [*shown[1:], screen.copy()]
        expected = [cv2.resize(one, (size, size), interpolation=cv2.INTER_AREA) for one in shown]
        np.testing.assert_array_equal(stack.frames, expected)
