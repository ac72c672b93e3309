"""Action masks: for every value of every choice, whether it may be chosen now.

A mask is one array over all choices, or has the structure of the action: a dictionary or tuple of masks where the
action is one (a part that is left out or None is free), an array over the values of a choice, for MultiDiscrete the
values of all its elements one after another or a tuple of arrays, for MultiBinary [may be 0, may be 1] of every bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from htsrl.errors import RuleBroken
from htsrl.spaces.actions import ActionLayout, action_layout
from htsrl.spaces.observations import parts_of

Mask = NDArray[np.bool_]
Read = Callable[[Any], NDArray[Any]]


class MaskReader:
    """Brings masks of whatever structure into one row, in the logits' order."""

    def __init__(self, layout: ActionLayout) -> None:
        self._categories = layout.categories
        self._firsts = np.cumsum([0, *layout.categories[:-1]])
        self._read = _reader(layout.space)
        self._names = [f" for {name}" if name else "" for name in _names(layout.space, "")]

    def __call__(self, mask: Any, is_last: bool = False) -> Mask:
        """RuleBroken for a mask of another shape, and for one that leaves a choice nothing during an episode."""
        flat: Mask = self._read(mask).astype(np.bool_)
        allowed = np.logical_or.reduceat(flat, self._firsts)
        if allowed.all():
            return flat
        if is_last:  # nobody will choose
            flat |= ~np.repeat(allowed, self._categories)
            return flat
        raise RuleBroken(
            f"the action mask allows nothing{self._names[int(np.argmin(allowed))]}; while the episode continues, "
            "something must be allowed: end the episode, or give it an action that does nothing"
        )


def _reader(space: spaces.Space[Any]) -> Read:
    width = sum(action_layout(space).categories)
    if isinstance(space, spaces.Dict | spaces.Tuple):
        readers = {key: _reader(part) for key, part in parts_of(space)}
        return lambda mask: _joined(readers, mask) if isinstance(mask, Mapping | tuple) else _row(space, width, mask)
    return lambda mask: _row(space, width, mask)


def _names(space: spaces.Space[Any], name: str) -> Iterator[str]:
    """What to call the choices of an action."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, part in parts_of(space):
            yield from _names(part, f"{name}[{key!r}]")
    elif isinstance(space, spaces.Discrete):
        yield name
    elif not isinstance(space, spaces.Box):
        yield from (f"{name}[{', '.join(map(str, place))}]" for place in np.ndindex(space.shape or ()))


def _joined(readers: Mapping[Any, Read], mask: Mapping[Any, Any] | tuple[Any, ...]) -> NDArray[Any]:
    parts = mask if isinstance(mask, Mapping) else dict(enumerate(mask))
    if unknown := [key for key in parts if key not in readers]:
        known = ", ".join(map(repr, readers))
        raise RuleBroken(f"the action mask has the parts {unknown}, which the action space has not; it has {known}")
    return np.concatenate([read(parts.get(key)) for key, read in readers.items()])


def _row(space: spaces.Space[Any], width: int, mask: Any) -> NDArray[Any]:
    if mask is None:
        return np.ones(width, np.bool_)
    parts = mask if isinstance(mask, tuple) else (mask,)
    row = np.concatenate([np.asarray(part).reshape(-1) for part in parts])
    if isinstance(space, spaces.Box):
        raise RuleBroken(f"the action mask has a part for {space}, which is no choice; leave it out")
    if len(row) != width or row.dtype.kind not in "biuf":
        raise RuleBroken(f"the action mask has {len(row)} values of {row.dtype}; {space} needs {width}, of 0 and 1")
    if row.dtype.kind != "b" and not ((row == 0) | (row == 1)).all():
        raise RuleBroken(f"the action mask has values other than 0 and 1: {row}")
    return row
