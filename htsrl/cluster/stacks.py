"""Stacked frames, each sent once: the stack of a row is mostly that of the row before, moved on by one frame.

Whether it is so is looked at, row by row and column by column, so a reset, a first row, or an image that only has as
many channels are sent as they are. What comes out is what went in, to the byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.cluster.parcel import Arrays, BrokenParcel

Named = dict[str, NDArray[Any]]
MIN_FRAME_BYTES = 64
"""Of less, there is nothing to save."""


def may_be_stacks(array: NDArray[Any]) -> bool:
    """Whether rows `[T, B, K, ...]` of bytes may be stacks of K frames."""
    return array.dtype == np.uint8 and array.ndim > 3 and array.shape[2] > 1 and array[0, 0, 0].size >= MIN_FRAME_BYTES


def take_apart(rows_TB: NDArray[Any]) -> Named:
    """The first row, the newest frame of each other, and the older ones where they are not those of the row before."""
    moved = np.empty((len(rows_TB) - 1, rows_TB.shape[1]), np.bool_)
    for row, of_row in enumerate(moved):
        older, before = rows_TB[row + 1, :, :-1], rows_TB[row, :, 1:]
        of_row[...] = (older == before).reshape(len(of_row), -1).all(axis=1)
    return {"first": rows_TB[0], "newest": rows_TB[1:, :, -1], "moved": moved, "older": rows_TB[1:, :, :-1][~moved]}


def put_together(parts: Arrays, like: tuple[int, ...]) -> NDArray[Any]:
    """The rows of shape `like`; raises BrokenParcel where the parts are not theirs."""
    rows_TB = np.empty(like, np.uint8)
    try:
        moved = parts["moved"]
        if moved.dtype != np.bool_ or moved.shape != (like[0] - 1, like[1]) or parts["first"].shape != like[1:]:
            raise ValueError(f"rows of {like} cannot be made of {moved.shape} and {parts['first'].shape}")
        rows_TB[0] = parts["first"]
        rows_TB[1:, :, -1] = parts["newest"]
        rows_TB[1:, :, :-1][~moved] = parts["older"]
    except (KeyError, ValueError, IndexError) as error:
        raise BrokenParcel(f"what came is no stack of frames: {error}") from error
    for row, of_row in enumerate(moved):
        rows_TB[row + 1, of_row, :-1] = rows_TB[row, of_row, 1:]
    return rows_TB
