"""An Atari game as a Gymnasium environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from htsrl.envs.atari.emulator import FIRE, NOOP, Emulator, UInt8
from htsrl.envs.atari.frame_stack import FrameStack
from htsrl.envs.atari.saved_state import SavedState
from htsrl.envs.atari.settings import check_same_settings, check_settings

Info = dict[str, Any]

STATE_VARIABLES = ("episode_score", "_last_button", "_lives", "_needs_reset", "_goes_on")


class Atari(gymnasium.Env[UInt8, np.int64]):
    """An Atari game as agents are trained on it; everything but the grey is an option.

    Observation: the last `stack` frames, oldest first, grey, resized to `screen_size`. A step holds its action for
    `frame_skip` frames and shows the maximum of the last two; a frame that ends the episode is not drawn, as in
    Gymnasium's AtariPreprocessing. A new game waits for 1 to `noop_max` frames, drawn from the reset's seed, then
    presses FIRE for a step if it has that button (`fire_on_reset`). The reward is the sign of what was scored
    (`clip_rewards`). After `max_frames` a game is truncated. With `repeat_action_probability` each frame may stick to
    the action of the frame before.

    With `episodic_life` a lost life terminates the episode and the next reset continues with the same game, one frame
    later, unless it is reset(options={"new_game": True}). `episode_score` and `episode_frames` are the true ones, of
    the whole game so far and unclipped. The step that ends the game, and no other, has both in its info, as
    info["episode"] = {"r": score, "l": frames}; should a game end while a reset waits or fires after a lost life, the
    info of that reset has them. `reports_episodes` tells whoever counts episodes to count those and not the lives.

    Everything is a function of the reset seeds and the actions, and `save_state` keeps all of it but the picture last
    drawn, which the ALE leaves out: with `frame_skip` below 3 the first step after a restore may show a few old
    pixels (Yars' Revenge), and Video Checkers and 3-D Tic-Tac-Toe, which think for several frames, may
    continue otherwise.
    """

    reports_episodes = True
    may_be_made_ahead = True  # an idle one takes a MiB, and 100 ms to make
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
        check_settings(self._settings)
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

    def get_action_meanings(self) -> list[str]:
        """The names of its actions, as ale-py's environments tell them."""
        import ale_py

        return [ale_py.Action(button).name for button in self._buttons]

    def render(self) -> Any:
        return self._emulator.colour_screen() if self.render_mode == "rgb_array" else None

    def save_state(self) -> bytes:
        """All that the future depends on, as bytes for `restore_state` of an environment made with the same options."""
        document = {
            "settings": self._settings,
            "variables": {name: getattr(self, name) for name in STATE_VARIABLES},
            "random": self.np_random.bit_generator.state,
        }
        frames, screen = self._stack.frames.tobytes(), self._screen.tobytes()
        return SavedState(document, self._emulator.save(), frames, screen).to_bytes()

    def restore_state(self, state: bytes) -> None:
        """Go on where `save_state` was called."""
        saved = SavedState.from_bytes(state)
        check_same_settings(saved.document["settings"], self._settings)
        self._emulator.restore(saved.emulator)
        self._screen[:] = np.frombuffer(saved.screen, np.uint8).reshape(self._screen.shape)
        self._screen_before.fill(0)
        self._stack.restore(np.frombuffer(saved.frames, np.uint8).reshape(self._stack.frames.shape), self._screen)
        self.np_random.bit_generator.state = saved.document["random"]
        for name in STATE_VARIABLES:
            setattr(self, name, saved.document["variables"][name])

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
        return {"episode": {"r": self.episode_score, "l": self.episode_frames}}
