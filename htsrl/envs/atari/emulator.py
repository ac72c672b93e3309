"""One emulated console with one game in it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

UInt8 = NDArray[np.uint8]

NOOP, FIRE = 0, 1  # of ale_py.Action


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
