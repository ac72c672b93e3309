"""Our Atari shows what Gymnasium's wrappers show, forgets nothing of the true game, and can be saved at any step."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
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
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from htsrl.envs.contract import check_contract
from htsrl.errors import ConfigError

ale_py = pytest.importorskip("ale_py")
cv2 = pytest.importorskip("cv2")

from htsrl.bench.atari_step import (  # noqa: E402
    FLOOR,
    IN_PLACE,
    NATIVE,
    NATIVE_VECTOR,
    OURS,
    WRAPPERS,
    AtariStepBench,
    Measured,
    table,
)
from htsrl.bench.tables.atari_step import AtariStepTable  # noqa: E402
from htsrl.envs.atari import FIRE, NOOP, Atari, FrameStack, UInt8, make_ale  # noqa: E402

REPOSITORY = Path(__file__).parents[2]
IDS = {"pong": "ALE/Pong-v5", "breakout": "ALE/Breakout-v5", "space_invaders": "ALE/SpaceInvaders-v5"}
IDS |= {"qbert": "ALE/Qbert-v5", "air_raid": "ALE/AirRaid-v5", "assault": "ALE/Assault-v5"}
PLAIN: dict[str, Any] = {"noop_max": 0, "fire_on_reset": False, "episodic_life": False, "clip_rewards": False}
"""As Gymnasium's wrappers are without options of their own."""

Step = tuple[bytes, float, bool, bool, dict[str, Any]]


def wrapped(game: str, max_frames: int = 108_000, **preprocessing: Any) -> gymnasium.Env[Any, Any]:
    raw = gymnasium.make(IDS[game], frameskip=1, repeat_action_probability=0.0, max_num_frames_per_episode=max_frames)
    return FrameStackObservation(AtariPreprocessing(raw, **{"noop_max": 0, **preprocessing}), 4)


def random_actions(env: gymnasium.Env[Any, Any], steps: int, seed: int = 0) -> list[int]:
    assert isinstance(env.action_space, gymnasium.spaces.Discrete)
    return list(map(int, np.random.default_rng(seed).integers(int(env.action_space.n), size=steps)))


def play(env: gymnasium.Env[Any, Any], actions: list[int], first_seed: int | None = 0) -> Iterator[Step]:
    """Every step and, where an episode ends, the reset after it, which has the next seed; None goes on as it stands."""
    seed = 100 if first_seed is None else first_seed
    if first_seed is not None:
        observation, info = env.reset(seed=seed)
        yield observation.tobytes(), 0.0, False, False, info
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        yield observation.tobytes(), float(reward), terminated, truncated, info
        if terminated or truncated:
            seed += 1
            observation, info = env.reset(seed=seed)
            yield observation.tobytes(), 0.0, False, False, info


def without_info(steps: list[Step]) -> list[tuple[bytes, float, bool, bool, int]]:
    return [(*step[:4], step[4]["lives"]) for step in steps]


# The same as Gymnasium's wrappers


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


@pytest.mark.parametrize("game", ["assault", "qbert"])  # whose emulators remember earlier games
def test_a_game_is_a_function_of_its_seed_and_actions_whatever_came_before(game: str) -> None:
    fresh, used = Atari(game, episodic_life=False), Atari(game, episodic_life=False)
    actions = random_actions(fresh, 120)
    list(play(used, random_actions(used, 150, seed=7), first_seed=9))
    assert list(play(used, actions)) == list(play(fresh, actions))


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


def test_sticky_actions_are_a_function_of_the_seed() -> None:
    first, second = (Atari("breakout", repeat_action_probability=0.25, noop_max=0) for _ in range(2))
    actions = random_actions(first, 80)
    trajectories = [list(play(env, actions, seed)) for env, seed in ((first, 1), (second, 1), (second, 2))]
    assert trajectories[0] == trajectories[1]
    assert trajectories[1] != trajectories[2]


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


def test_a_state_saved_at_a_lost_life_goes_on_with_that_game() -> None:
    saved, other = Atari("breakout"), Atari("breakout")
    saved.reset(seed=0)
    _lose_a_life(saved)
    other.restore_state(saved.save_state())
    (expected, info), (got, info_of_other) = saved.reset(seed=4), other.reset(seed=4)
    np.testing.assert_array_equal(got, expected)
    assert info_of_other == info == {"lives": 4}
    assert other.episode_score == saved.episode_score


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


# A proper environment


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


# The benchmark


def test_bench_atari_step_lets_all_take_turns_and_writes_a_record(tmp_path: Path) -> None:
    AtariStepTable(games=("ALE/Pong-v5",), steps=8, repetitions=2, output=tmp_path).run()

    (path,) = tmp_path.glob("*-atari-step.json")
    record = json.loads(path.read_text())
    assert record["command"] == "htsrl bench atari-step --games ALE/Pong-v5 --steps 8 --repetitions 2"
    assert record["versions"]["ale-py"] == ale_py.__version__
    (measured,) = record["repetitions"]
    assert {OURS, IN_PLACE, WRAPPERS, NATIVE, NATIVE_VECTOR, FLOOR} < measured["microseconds"].keys()
    assert all(len(values) == 2 and min(values) > 0 for values in measured["microseconds"].values())
    assert record["summary"]["ALE/Pong-v5"][OURS]["times_ours"]["median"] == 1


def test_ratios_are_taken_within_a_repetition_and_held_against_the_goals() -> None:
    others = {WRAPPERS: [119.0, 357.0, 480.0], NATIVE: [100.0, 330.0, 360.0], NATIVE_VECTOR: [90.0, 300.0, 400.0]}
    measured = Measured("ALE/Pong-v5", {OURS: [100.0, 300.0, 400.0], **others})

    wrappers = measured.times_ours(WRAPPERS)
    assert (wrappers.lowest, wrappers.median, wrappers.highest) == (1.19, 1.19, 1.2)
    assert [measured.meets_goal(name) for name in (WRAPPERS, NATIVE, NATIVE_VECTOR)] == [False, True, True]
    cells = {row[1]: row[2:] for row in table([measured]).rows}
    assert cells[WRAPPERS] == ["357 (119 to 480)", "1.19 (1.19 to 1.20)", "1.2 missed"]
    assert cells[NATIVE] == ["330 (100 to 360)", "1.00 (0.90 to 1.10)", "1.0 met"]


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ({"games": ()}, "games is empty"),
        ({"games": ("CartPole-v1",)}, "game 'CartPole-v1' is not one of ale-py's"),
        ({"repetitions": 0}, "repetitions=0 must be at least 1"),
        ({"steps": 12}, "steps=12 must be a multiple of 8"),
        ({"steps": 0}, "steps=0 must be a multiple of 8"),
    ],
)
def test_a_benchmark_that_measures_nothing_is_refused(mistake: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AtariStepBench(**{"games": ("ALE/Pong-v5",), "steps": 8, "repetitions": 1, **mistake})


def test_a_benchmark_of_an_unknown_game_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean ALE/Pong-v5"):
        AtariStepTable(games=("ALE/Pnog-v5",), output=tmp_path).run()


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
