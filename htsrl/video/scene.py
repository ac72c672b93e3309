"""What is filmed: the steps of one episode, or of a stretch of a run, before anything is drawn."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.replay.stretch import probabilities
from htsrl.spaces import Interface
from htsrl.spaces.actions import ActionLayout

Array = NDArray[Any]


@dataclass(frozen=True)
class PackedFrame:
    """A frame, compressed: an episode may have thousands."""

    data: bytes
    shape: tuple[int, ...]

    @classmethod
    def of(cls, frame: NDArray[np.uint8] | None) -> PackedFrame | None:
        return None if frame is None else cls(zlib.compress(frame.tobytes(), 1), frame.shape)

    def unpacked(self) -> NDArray[np.uint8]:
        return np.frombuffer(zlib.decompress(self.data), np.uint8).reshape(self.shape)


@dataclass(frozen=True)
class Shot:
    """One frame: what was seen, and what the policy made of it."""

    step: int
    score: float
    """The return so far."""
    seen: Mapping[str, Array]
    """Of the first agent."""
    frame: PackedFrame | None
    value: float | None = None
    probabilities: Array | None = None
    """Of every value of every choice."""
    means: Array | None = None
    """Of continuous dimensions, as the environment would get them."""
    action: Array | None = None
    """As it is stored; None at the end, where there is no other."""
    note: str = ""
    """How it ended."""


@dataclass(frozen=True)
class Scene:
    """Shots in order, and what belongs to all of them."""

    title: str
    subtitle: str
    interface: Interface
    fps: float
    shots: Sequence[Shot]
    action_names: Sequence[str] = ()
    """Of the values of a single choice, where the environment has names for them."""


def continuous_parts(layout: ActionLayout, stored: Array) -> Array:
    """The continuous dimensions of an action, as the environment gets them."""
    return np.concatenate([np.empty(0), *_floats(layout.to_env(stored))])


def _floats(action: Any) -> list[Array]:
    if isinstance(action, dict):
        return [part for value in action.values() for part in _floats(value)]
    if isinstance(action, tuple):
        return [part for value in action for part in _floats(value)]
    is_continuous = isinstance(action, np.ndarray) and action.dtype.kind == "f"
    return [action.reshape(-1).astype(np.float64)] if is_continuous else []


def means_in_env(layout: ActionLayout, outputs: Array) -> Array | None:
    """The means among a network's outputs, as the environment would get them."""
    if not layout.num_continuous:
        return None
    num_logits = sum(layout.categories)
    stored = np.concatenate([np.zeros(len(layout.categories)), outputs[num_logits:]]).astype(layout.dtype)
    return continuous_parts(layout, stored)


def probabilities_of(outputs: Array, interface: Interface, mask: Array | None) -> Array | None:
    """Of every value of every choice; None where there are none."""
    return probabilities(outputs, interface, mask) if interface.actions.categories else None
