"""From screens to an observation: resized and stacked."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import numpy as np

from htsrl.envs.atari.emulator import UInt8

WORD = np.uint64  # screens are compared by eight pixels at a time; a row has 160


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
        self._drawn_words = self._drawn.view(WORD)
        self._block_words = self._block * self._drawn_words.shape[1]
        self._differs = np.empty(self._drawn_words.shape, np.bool_)

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
        np.not_equal(self._drawn_words, screen.view(WORD), out=self._differs)
        differs = self._differs.tobytes()  # bytes are searched several times faster than an array
        if (first := differs.find(True)) >= 0:
            self._draw(screen, frame, first // self._block_words, differs.rfind(True) // self._block_words + 1)

    def fill(self, screen: UInt8) -> None:
        """As if there had never been anything but this screen."""
        self._draw(screen, self.frames[-1], 0, len(screen) // self._block)
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
