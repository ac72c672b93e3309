"""Simulators from optional packages: in terms that htsrl can train on, and repeatable."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from replay import assert_episodes_repeat

from htsrl.envs.contract import check_contract
from htsrl.envs.minigrid import make_minigrid
from htsrl.envs.nethack import SYMBOLS, make_nethack
from htsrl.envs.vizdoom import make_vizdoom
from htsrl.errors import ConfigError
from htsrl.spaces import action_layout, observation_leaves

Env = gymnasium.Env[Any, Any]

SIMULATORS = [
    pytest.param("mujoco", partial(gymnasium.make, "HalfCheetah-v5"), id="half cheetah"),
    pytest.param("mujoco", partial(gymnasium.make, "Hopper-v5"), id="hopper"),
    pytest.param("minigrid", partial(make_minigrid, "MiniGrid-DoorKey-5x5-v0"), id="door and key"),
    pytest.param("minigrid", partial(make_minigrid, "MiniGrid-LavaCrossingS9N1-v0", view="full"), id="lava, all of it"),
    pytest.param("minigrid", partial(make_minigrid, "MiniGrid-FourRooms-v0", view="pixels"), id="rooms in pixels"),
    pytest.param("minigrid", partial(make_minigrid, "BabyAI-GoToLocal-v0"), id="BabyAI"),
    pytest.param("vizdoom", partial(make_vizdoom, "VizdoomBasic-v1"), id="doom"),
    pytest.param("vizdoom", partial(make_vizdoom, "VizdoomHealthGathering-v1", colour=True), id="doom in colour"),
    pytest.param("vizdoom", partial(make_vizdoom, "VizdoomDeathmatch-v1", stack=1), id="doom with a mouse"),
    pytest.param("nle", partial(make_nethack, "NetHackScore-v0"), id="nethack score"),
    pytest.param("nle", partial(make_nethack, "NetHackEat-v0"), id="nethack eat"),
    pytest.param("nle", partial(make_nethack, "NetHack-v0", crop=5, character="@"), id="nethack, any hero"),
]


@pytest.fixture(autouse=True)
def _leave_nothing_in_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def made(package: str, make: Callable[[], Env]) -> Env:
    pytest.importorskip(package)
    return make()


@pytest.mark.parametrize(("package", "make"), SIMULATORS)
def test_it_keeps_the_contract_in_spaces_that_policies_know(package: str, make: Callable[[], Env]) -> None:
    env = made(package, make)
    check_contract(env)
    assert observation_leaves(env.observation_space)["obs"].categories is None
    assert action_layout(env.action_space).to_env(np.zeros(env.action_space.shape or ())) in env.action_space
    env.close()


@pytest.mark.parametrize(("package", "make"), SIMULATORS)
def test_an_episode_is_a_function_of_its_seed_and_actions(package: str, make: Callable[[], Env]) -> None:
    pytest.importorskip(package)
    assert_episodes_repeat(make)


@pytest.mark.parametrize(
    ("package", "extra", "make"),
    [
        ("minigrid", "minigrid", partial(make_minigrid, "MiniGrid-Empty-5x5-v0")),
        ("vizdoom.gymnasium_wrapper", "vizdoom", partial(make_vizdoom, "VizdoomBasic-v1")),
        ("nle", "nethack", partial(make_nethack, "NetHackScore-v0")),
    ],
)
def test_a_missing_package_is_named_with_what_installs_it(
    package: str, extra: str, make: Callable[[], Env], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"{package} cannot be imported: .*; pip install htsrl\[{extra}\]"):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            partial(make_minigrid, "MiniGrid-Empty-5x5-v0", view="all"),  # type: ignore[arg-type]
            "view='all' is not partial, full or pixels",
        ),
        (partial(make_vizdoom, "VizdoomBasic-v1", stack=0), "stack=0 must be at least 1"),
        (partial(make_nethack, "NetHackScore-v0", crop=4), "crop=4 must be odd"),
        (partial(make_nethack, "NetHackChallenge-v0"), "NetHackChallenge-v0 does not let itself be seeded"),
    ],
)
def test_a_bad_option_is_refused_by_name(make: Callable[[], Env], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


# MiniGrid


@pytest.mark.parametrize("view", ["partial", "full"])
def test_cells_can_be_read_back_from_their_one_hot(view: Any) -> None:
    env = made("minigrid", partial(make_minigrid, "MiniGrid-DoorKey-6x6-v0", view=view))
    assert isinstance(env, gymnasium.ObservationWrapper)
    env.action_space.seed(0)
    env.reset(seed=1)
    for _ in range(50):
        observation, *_ = env.step(env.action_space.sample())
        original = env.env.unwrapped.gen_obs() if view == "partial" else env.env.observation(env.unwrapped.gen_obs())  # type: ignore[attr-defined]
        cells = observation[:-4].reshape(*original["image"].shape[:2], 21)
        parts = np.split(cells, [11, 17], axis=-1)
        np.testing.assert_array_equal(np.stack([part.argmax(-1) for part in parts], -1), original["image"])
        assert [np.count_nonzero(part, -1).max() for part in parts] == [1, 1, 1]
        assert list(observation[-4:]) == [255 * (way == original["direction"]) for way in range(4)]


def test_pixels_are_a_picture_large_enough_for_a_convolutional_network() -> None:
    env = made("minigrid", partial(make_minigrid, "MiniGrid-Empty-8x8-v0", view="pixels"))
    assert env.observation_space == spaces.Box(0, 255, (56, 56, 3), np.uint8)


# VizDoom


def test_doom_shows_its_last_screens_oldest_first() -> None:
    env = made("vizdoom", partial(make_vizdoom, "VizdoomDefendCenter-v1", stack=3, screen_size=48, colour=True))
    first, _ = env.reset(seed=0)
    assert first.shape == (9, 48, 48)
    np.testing.assert_array_equal(first[:3], first[6:])
    second, *_ = env.step(1)
    np.testing.assert_array_equal(second[:6], first[3:])
    assert (second[6:] != first[6:]).any()
    env.close()


@pytest.mark.parametrize(("frame_skip", "steps"), [(4, 75), (7, 43)])
def test_dooms_time_limit_truncates_and_shows_a_screen(frame_skip: int, steps: int) -> None:
    env = made("vizdoom", partial(make_vizdoom, "VizdoomBasic-v1", frame_skip=frame_skip))
    env.reset(seed=0)
    for _ in range(steps - 1):
        assert env.step(0)[2:4] == (False, False)
    observation, _, terminated, truncated, _ = env.step(0)
    assert (terminated, truncated) == (False, True)
    assert observation[-1].std() > 1
    env.close()


def test_dooms_settings_are_a_games_own(tmp_path: Path) -> None:
    env = made("vizdoom", partial(make_vizdoom, "VizdoomBasic-v1"))
    env.reset(seed=0)
    env.close()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


# NetHack


def test_the_hero_stands_in_the_middle_of_what_is_seen() -> None:
    env = made("nle", partial(make_nethack, "NetHackScore-v0", crop=3))
    for seed in range(5):
        observation, _ = env.reset(seed=seed)
        num_status = 26 + 13
        cells = observation[:-num_status].reshape(9, -1)
        np.testing.assert_array_equal(cells.sum(axis=1), np.ones(9))
        kinds = sorted({*SYMBOLS.values(), "pet", "felt", "monster", "corpse", "statue"} | _object_classes())
        assert kinds[int(cells[4].argmax())] == "monster"


def _object_classes() -> set[str]:
    return {f"object {number}" for number in range(1, 18)}


def test_nethacks_time_limit_truncates_and_shows_the_game() -> None:
    env = made("nle", partial(make_nethack, "NetHackScore-v0", max_episode_steps=20))
    env.reset(seed=0)
    for _ in range(19):
        before, _, terminated, truncated, _ = env.step(0)
        assert (terminated, truncated) == (False, False)
    observation, _, terminated, truncated, _ = env.step(0)
    assert (terminated, truncated) == (False, True)
    np.testing.assert_array_equal(observation[:-39], before[:-39])


def test_nethack_goes_on_with_other_games_when_reset_without_a_seed() -> None:
    env = made("nle", partial(make_nethack, "NetHackScore-v0"))
    first, _ = env.reset(seed=0)
    second, _ = env.reset()
    env.reset(seed=0)
    again, _ = env.reset()
    assert (first != second).any()
    np.testing.assert_array_equal(second, again)


def test_the_penalty_for_idling_forgets_the_game_before() -> None:
    env = made("nle", partial(make_nethack, "NetHackScore-v0", penalty_mode="linear"))
    env.reset(seed=0)
    first, second = env.step(0)[1], env.step(0)[1]
    env.reset(seed=0)
    assert env.step(0)[1] == first != second
