"""The rollouts of a replay buffer in the checkpoints of a run.

`rollouts-000000064-000000096.safetensors` in a checkpoint's folder is a segment: what rollouts 64 to 95 put into the
buffer. A new checkpoint writes the rollouts since the one before as a segment of its own, and links the others from
there; of very many, it writes the newest again as one. So every folder holds all that it needs, whatever becomes of the
others, and its manifest has the sum of every segment. Segments are taken over only from checkpoints that this run has
written since it was started, or that it was resumed from, so they hold what is in memory. Where files cannot be linked,
all is written again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.checkpoint.manifest import Manifest

NAME = re.compile(r"rollouts-([0-9]{9,15})-([0-9]{9,15})\.safetensors")
HELD, SESSION = "rollouts_held", "session"
"""In a checkpoint's document: how many rollouts the buffer has room for, and which start of the run has written it."""
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Segment:
    """What neighbouring rollouts put into the buffer, one after another."""

    first: int
    end: int
    arrays: Arrays

    @property
    def name(self) -> str:
        return f"rollouts-{self.first:09d}-{self.end:09d}.safetensors"


def assembled(manifest: Manifest, segments: Iterable[tuple[str, Arrays]]) -> dict[str, NDArray[Any]]:
    """The buffer's arrays, as far as they are filled; ValueError where segments do not fit."""
    version, held = manifest.document["version"], manifest.document.get(HELD)
    if not isinstance(held, int) or held < 1:
        raise ValueError(f"has rollouts of a buffer with room for {held!r}")
    oldest = max(version - held, 0)
    filled: dict[str, NDArray[Any]] = {}
    names: Collection[str] = ()
    for name, arrays in segments:
        first, end = range_of(name)
        names = names or arrays.keys()
        if not arrays or arrays.keys() != names:
            raise ValueError(f"has {sorted(arrays)} in {name} where it has {sorted(names)} in the first segment")
        for of, array in arrays.items():
            num_rows, left_over = divmod(len(array) if array.ndim and array.size else 0, end - first)
            if left_over or not num_rows:
                raise ValueError(f"has {of!r} of {array.shape} in {name}, which are not so many rollouts")
            whole = filled.setdefault(of, np.zeros(((version - oldest) * num_rows, *array.shape[1:]), array.dtype))
            if whole.shape[1:] != array.shape[1:] or len(whole) != (version - oldest) * num_rows:
                raise ValueError(f"has {of!r} of {array.shape} in {name}, which does not fit the others")
            for rollout in range(max(first, oldest), end):
                at, place = (rollout - first) * num_rows, rollout % held * num_rows
                whole[place : place + num_rows] = array[at : at + num_rows]
    return filled


def check_ranges(names: Iterable[str], version: int, held: Any) -> None:
    """ValueError unless segments follow one another, and the last ends with the version."""
    ranges = sorted(range_of(name) for name in names)
    follow = all(before[1] == after[0] for before, after in pairwise(ranges))
    oldest = max(version - held, 0) if isinstance(held, int) else 0
    if not follow or not ranges or ranges[0][0] > oldest or ranges[-1][1] != version:
        raise ValueError(f"lacks rollouts: it has {ranges} of those up to {version}")


def is_segment(name: str) -> bool:
    match = NAME.fullmatch(name)
    return match is not None and int(match[1]) < int(match[2])


def range_of(name: str) -> tuple[int, int]:
    match = NAME.fullmatch(name)
    assert match is not None, name
    return int(match[1]), int(match[2])
