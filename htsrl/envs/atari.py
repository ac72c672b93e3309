"""Atari games on the raw Arcade Learning Environment (ALE), preprocessed in the usual way and nothing in between."""

from __future__ import annotations

import difflib
import importlib
import inspect
import itertools
import json
import struct
from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from htsrl.errors import ConfigError

Info = dict[str, Any]
UInt8 = NDArray[np.uint8]

NOOP, FIRE = 0, 1  # of ale_py.Action
ARGUMENTS_OF_ALE_PY = {
    "obs_type", "frameskip", "mode", "difficulty", "continuous", "continuous_action_threshold", "sound_obs",
    "max_num_frames_per_episode",
}  # fmt: skip
LEAST = {"frame_skip": 1, "noop_max": 0, "screen_size": 1, "stack": 1}
STATE_MAGIC = b"ATR1"
STATE_HEADER = struct.Struct("<4s4I")  # the sizes of: JSON, emulator, frames, screen
STATE_VARIABLES = ("episode_score", "_last_button", "_lives", "_needs_reset", "_goes_on")


class Emulator:
    """One game in the ALE; a new game always begins at the same instant, whatever was played before.

    `reset_game` alone begins with the memory and the random numbers that earlier games left, which changes 14 of 104
    games; loading the ROM again, as ale-py does for every seed, takes 95 ms. A reset with the first game's beginning
    restored over it takes 4 ms.
    """

    SETTLING_FRAMES = 2

    def __init__(self, game: str, max_frames: int | None) -> None:
        import ale_py
        from ale_py import roms

        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self._state_type = ale_py.ALEState
        self._ale = ale = ale_py.ALEInterface()
        ale.setFloat("repeat_action_probability", 0.0)  # ours stick by numbers that a state can hold
        ale.setInt("max_num_frames_per_episode", max_frames or 0)
        ale.loadROM(str(roms.get_rom_path(game)))
        ale.reset_game()
        self._beginning = ale.cloneState()
        self._first_screen: UInt8 = ale.getScreenGrayscale()
        self.minimal_actions = tuple(action.value for action in ale.getMinimalActionSet())
        self.legal_actions = tuple(action.value for action in ale.getLegalActionSet())
        # Not wrapped: a step calls them a dozen times.
        self.emulate_frame = ale.act
        self.lives = ale.lives
        self.is_over = ale.game_over
        self.is_truncated = ale.game_truncated
        self.grey_screen_into = ale.getScreenGrayscale
        self.colour_screen = ale.getScreenRGB

    @property
    def frames(self) -> int:
        """Emulated since the game began."""
        return self._ale.getEpisodeFrameNumber()

    def begin_game(self) -> UInt8:
        """Begin a game; its grey screen is returned, for restoring a state does not bring it back."""
        self._ale.reset_game()
        self._ale.restoreState(self._beginning)
        return self._first_screen

    def save(self) -> bytes:
        return self._ale.cloneState().serialize()

    def restore(self, saved: bytes) -> None:
        """Go on from `saved`.

        The ALE's state leaves out whether the emulator is in the middle of a picture. Q*bert and Tetris are, for two
        frames after a reset, so the emulator must be brought as far first as it was when the state was saved.
        """
        state = self._state_type(saved)
        self.begin_game()
        for _ in range(min(state.getEpisodeFrameNumber(), self.SETTLING_FRAMES)):
            self._ale.act(NOOP)
        self._ale.restoreState(state)


class FrameStack:
    """The last `depth` frames, oldest first, sliding along a longer piece of memory so as to be always in one piece.

    After the emulator, resizing costs most, and most of a screen stays as it was. So only the rows from the first to
    the last that changed are resized, in blocks that make whole rows of a frame: 5 make 2 for 210 to 84.
    """

    def __init__(self, depth: int, size: int, screen: UInt8) -> None:
        import cv2

        self._depth = depth
        self._memory: UInt8 = np.zeros((4 * depth, size, size), np.uint8)
        self._end = depth
        self._resize = partial(cv2.resize, interpolation=cv2.INTER_AREA)
        self._block, self._frame_block = _blocks(screen, size)
        self._drawn = screen.copy()
        self._drawn_blocks = self._drawn.reshape(len(screen) // self._block, -1)
        self._differs = np.empty(self._drawn_blocks.shape, np.bool_)

    @property
    def frames(self) -> UInt8:
        return self._memory[self._end - self._depth : self._end]

    def push(self, screen: UInt8) -> None:
        """Add a screen; the oldest frame leaves."""
        if self._end == len(self._memory):
            self._memory[: self._depth] = self.frames
            self._end = self._depth
        frame = self._memory[self._end]
        frame[:] = self._memory[self._end - 1]
        self._end += 1
        np.not_equal(self._drawn_blocks, screen.reshape(self._drawn_blocks.shape), out=self._differs)
        changed = np.flatnonzero(self._differs.any(axis=1))
        if len(changed):
            self._draw(screen, frame, int(changed[0]), int(changed[-1]) + 1)

    def fill(self, screen: UInt8) -> None:
        """As if there had never been anything but this screen."""
        self._draw(screen, self.frames[-1], 0, len(self._drawn_blocks))
        self.frames[:-1] = self.frames[-1]

    def restore(self, frames: UInt8, screen: UInt8) -> None:
        """Take over the frames of another stack and the screen that its newest shows."""
        self.frames[:] = frames
        self._drawn[:] = screen

    def _draw(self, screen: UInt8, frame: UInt8, first_block: int, end_block: int) -> None:
        rows = slice(first_block * self._block, end_block * self._block)
        part = frame[first_block * self._frame_block : end_block * self._frame_block]
        self._drawn[rows] = screen[rows]
        self._resize(screen[rows], part.shape[::-1], dst=part)


def _blocks(screen: UInt8, size: int) -> tuple[int, int]:
    """The fewest rows of a screen that make whole rows of a frame, and those rows; all, if cv2 might then round apart.

    It would if a row's position were no exact binary fraction, and enlarging looks across the edge of a block.
    """
    ratio = Fraction(len(screen), size)
    is_exact = ratio.denominator.bit_count() == 1 and size <= min(screen.shape)
    return (ratio.numerator, ratio.denominator) if is_exact else (len(screen), size)


class Atari(gymnasium.Env[UInt8, np.int64]):
    """An Atari game as agents are trained on it; everything but the grey is an option.

    Observation: the last `stack` frames, oldest first, grey, resized to `screen_size`. A step holds its action for
    `frame_skip` frames and shows the maximum of the last two; a frame that ends the episode is not drawn, as in
    Gymnasium's AtariPreprocessing. A new game waits for 1 to `noop_max` frames, drawn from the reset's seed, then
    presses FIRE for a step if it has that button (`fire_on_reset`). The reward is the sign of what was scored
    (`clip_rewards`). After `max_frames` a game is truncated. With `repeat_action_probability` each frame may stick to
    the action of the frame before.

    With `episodic_life` a lost life terminates the episode and the next reset goes on with the same game, one frame
    later, unless it is reset(options={"new_game": True}). `episode_score` and `episode_frames` are the true ones, of
    the whole game so far and unclipped. The step that ends the game, and no other, has both in its info; should a
    game end while a reset waits or fires after a lost life, the info of that reset has them.

    Everything is a function of the reset seeds and the actions, and `save_state` keeps all of it but the picture last
    drawn, which the ALE leaves out: with `frame_skip` below 3 the first step after a restore may show a few old
    pixels (Yars' Revenge), and Video Checkers and 3-D Tic-Tac-Toe, which think for several frames, may go on otherwise.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012  (as Gymnasium declares it)

    def __init__(
        self,
        game: str,
        frame_skip: int = 4,
        noop_max: int = 30,
        fire_on_reset: bool = True,
        episodic_life: bool = True,
        clip_rewards: bool = True,
        repeat_action_probability: float = 0.0,
        max_frames: int | None = 108_000,
        full_action_space: bool = False,
        screen_size: int = 84,
        stack: int = 4,
        render_mode: str | None = None,
    ) -> None:
        self._settings = {name: value for name, value in locals().items() if name not in ("self", "render_mode")}
        _check_settings(self._settings)
        self.render_mode = render_mode
        self._emulator = Emulator(game, max_frames)
        self._frame_skip = frame_skip
        self._noop_max = noop_max
        self._fire_frames = frame_skip if fire_on_reset and FIRE in self._emulator.minimal_actions else 0
        self._episodic_life = episodic_life
        self._clip_rewards = clip_rewards
        self._stickiness = repeat_action_probability
        self._buttons = self._emulator.legal_actions if full_action_space else self._emulator.minimal_actions
        self._screen = self._emulator.begin_game().copy()
        self._screen_before = np.zeros_like(self._screen)
        self._stack = FrameStack(stack, screen_size, self._screen)
        self.observation_space = spaces.Box(0, 255, self._stack.frames.shape, np.uint8)
        self.action_space = spaces.Discrete(len(self._buttons))
        self.episode_score = 0.0
        self._last_button = NOOP
        self._lives = self._emulator.lives()
        self._needs_reset = True
        self._goes_on = False  # the episode that ended was a life, and the game has others

    @property
    def episode_frames(self) -> int:
        return self._emulator.frames

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[UInt8, Info]:
        observation = np.empty_like(self._stack.frames)
        return observation, self.reset_into(observation, seed=seed, options=options)

    def step(self, action: np.int64 | int) -> tuple[UInt8, float, bool, bool, Info]:
        observation = np.empty_like(self._stack.frames)
        return observation, *self.step_into(action, observation)

    def reset_into(self, observation: UInt8, *, seed: int | None = None, options: Info | None = None) -> Info:
        """`reset` that writes the observation into an array of the caller's."""
        # The stream that ale-py's environment would draw from: a seed means as many no-ops there as here.
        super().reset(seed=None if seed is None else int(np.random.SeedSequence(seed).generate_state(2)[0]))
        goes_on = self._goes_on and not (options or {}).get("new_game", False)
        ended_game: Info = {}
        if goes_on:
            self._press(NOOP, 1)
            self._press(FIRE, self._fire_frames)
            if self._emulator.is_over():
                goes_on, ended_game = False, self._true_episode()
        if not goes_on:
            self._begin_game()
        self._lives = self._emulator.lives()
        self._needs_reset = self._goes_on = False
        self._screen_before.fill(0)
        self._stack.fill(self._screen)
        np.copyto(observation, self._stack.frames)
        return {"lives": self._lives, **ended_game}

    def step_into(self, action: np.int64 | int, observation: UInt8) -> tuple[float, bool, bool, Info]:
        """`step` that writes the observation into an array of the caller's."""
        if self._needs_reset:
            raise gymnasium.error.ResetNeeded(f"step({action}) came before a reset; an episode that ended needs one")
        if not 0 <= action < len(self._buttons):
            raise gymnasium.error.InvalidAction(f"action {action!r} is not one of 0 to {len(self._buttons) - 1}")
        score_before = self.episode_score
        lost_a_life = self._hold(self._buttons[action])
        np.maximum(self._screen, self._screen_before, out=self._screen)
        self._stack.push(self._screen)
        np.copyto(observation, self._stack.frames)
        reward = self.episode_score - score_before
        if self._clip_rewards:
            reward = float((reward > 0) - (reward < 0))
        truncated = self._emulator.is_truncated()
        game_over = self._emulator.is_over(with_truncation=False)
        terminated = game_over or lost_a_life
        self._needs_reset = terminated or truncated
        self._goes_on = lost_a_life and not (game_over or truncated)
        ended_game = self._true_episode() if game_over or truncated else {}
        return reward, terminated, truncated, {"lives": self._lives, **ended_game}

    def render(self) -> Any:
        return self._emulator.colour_screen() if self.render_mode == "rgb_array" else None

    def save_state(self) -> bytes:
        """All that the future depends on, as bytes for `restore_state` of an environment made with the same options."""
        document = {
            "settings": self._settings,
            "variables": {name: getattr(self, name) for name in STATE_VARIABLES},
            "random": self.np_random.bit_generator.state,
        }
        text = json.dumps(document).encode()
        parts = text, self._emulator.save(), self._stack.frames.tobytes(), self._screen.tobytes()
        return STATE_HEADER.pack(STATE_MAGIC, *map(len, parts)) + b"".join(parts)

    def restore_state(self, state: bytes) -> None:
        """Go on where `save_state` was called."""
        text, emulator, frames, screen = _parts_of(state)
        document = json.loads(text)
        _check_same_settings(document["settings"], self._settings)
        self._emulator.restore(emulator)
        self._screen[:] = np.frombuffer(screen, np.uint8).reshape(self._screen.shape)
        self._screen_before.fill(0)
        self._stack.restore(np.frombuffer(frames, np.uint8).reshape(self._stack.frames.shape), self._screen)
        self.np_random.bit_generator.state = document["random"]
        for name in STATE_VARIABLES:
            setattr(self, name, document["variables"][name])

    def _begin_game(self) -> None:
        self.episode_score = 0.0
        self._last_button = NOOP
        np.copyto(self._screen, self._emulator.begin_game())
        self._press(NOOP, int(self.np_random.integers(1, self._noop_max + 1)) if self._noop_max else 0)
        self._press(FIRE, self._fire_frames)

    def _press(self, button: int, num_frames: int) -> None:
        """Hold a button while nobody watches, and look at the screen thereafter."""
        for _ in range(num_frames):
            self._emulate(button)
        if num_frames:
            self._emulator.grey_screen_into(self._screen)

    def _hold(self, button: int) -> bool:
        """Hold a button for a step, or until the episode ends; whether that was by the loss of a life."""
        for frames_left in reversed(range(self._frame_skip)):
            self._emulate(button)
            if self._loses_a_life():
                return True
            if self._emulator.is_over():
                return False
            if frames_left == 1:
                self._emulator.grey_screen_into(self._screen_before)
            elif frames_left == 0:
                self._emulator.grey_screen_into(self._screen)
        return False

    def _emulate(self, button: int) -> None:
        if self._stickiness and self.np_random.random() < self._stickiness:
            button = self._last_button
        self._last_button = button
        self.episode_score += self._emulator.emulate_frame(button)

    def _loses_a_life(self) -> bool:
        lives_before, self._lives = self._lives, self._emulator.lives()
        return self._episodic_life and self._lives < lives_before

    def _true_episode(self) -> Info:
        return {"episode_score": self.episode_score, "episode_frames": self.episode_frames}


def make_ale(env_id: str, **env_args: Any) -> gymnasium.Env[Any, Any]:
    """The game that ale-py registers as `env_id`: an `Atari` of ours, unless an argument is one of ale-py's own."""
    _import_simulator()
    spec = gymnasium.registry.get(env_id)
    if spec is None or ARGUMENTS_OF_ALE_PY & env_args.keys():
        return gymnasium.make(env_id, disable_env_checker=True, **env_args)
    options = list(inspect.signature(Atari).parameters)[1:]
    if unknown := env_args.keys() - options:
        raise ConfigError(f"{env_id} does not take {', '.join(sorted(unknown))}; it takes {', '.join(options)}")
    arguments = {"game": spec.kwargs["game"], **env_args}
    made = Atari(**arguments)
    made.spec = EnvSpec(env_id, entry_point=f"{__name__}:Atari", kwargs=arguments)
    return made


def _import_simulator() -> None:
    for package in ("ale_py", "cv2"):
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise ConfigError(f"Atari needs {package}: {error}; pip install htsrl[atari]") from error


def _check_settings(settings: Mapping[str, Any]) -> None:
    _import_simulator()
    from ale_py import roms

    game, games = settings["game"], roms.get_all_rom_ids()
    if game not in games:
        near = difflib.get_close_matches(str(game).lower(), games) or ["pong", "breakout", "ms_pacman"]
        raise ConfigError(f"game={game!r} is not one that ale-py brings; names are like {', '.join(near)}")
    for name, least in LEAST.items():
        if settings[name] < least:
            raise ConfigError(f"{name}={settings[name]} must be at least {least}")
    stickiness = settings["repeat_action_probability"]
    if not 0 <= stickiness < 1:
        raise ConfigError(f"repeat_action_probability={stickiness} must be at least 0 and below 1")
    max_frames, start_frames = settings["max_frames"], settings["noop_max"] + settings["frame_skip"]
    if max_frames is not None and max_frames <= start_frames:
        raise ConfigError(
            f"max_frames={max_frames} leaves nothing to play: the no-ops and FIRE of a new game may take "
            f"{start_frames} frames; give more, or None for no limit"
        )


def _parts_of(state: bytes) -> list[bytes]:
    magic, *sizes = STATE_HEADER.unpack_from(state) if len(state) >= STATE_HEADER.size else (b"",)
    if magic != STATE_MAGIC or len(state) != STATE_HEADER.size + sum(sizes):
        raise ConfigError(f"these {len(state)} bytes are not a whole state of an Atari; use what save_state returned")
    ends = itertools.accumulate(sizes, initial=STATE_HEADER.size)
    return [state[begin:end] for begin, end in itertools.pairwise(ends)]


def _check_same_settings(saved: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    for name, value in own.items():
        if saved[name] != value:
            raise ConfigError(
                f"a state saved with {name}={saved[name]!r} cannot be restored with {name}={value!r}; make the "
                "environment with the same options"
            )


# Made bare: `Atari` refuses a step before a reset by itself, and a wrapper would hide `step_into`.
gymnasium.register("htsrl/Atari-v0", f"{__name__}:Atari", order_enforce=False, disable_env_checker=True)
